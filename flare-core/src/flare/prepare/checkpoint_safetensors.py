"""Checkpoints in the hub's layout: a directory with `config.json`, safetensors files and text assets.

In place of the files a directory may describe weights to generate (`random_tensors`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flare.errors import CheckpointError
from flare.prepare.checkpoint import Checkpoint, TensorStore, known_tensor
from flare.prepare.checkpoint_assets import read_assets, read_json
from flare.prepare.checkpoint_header import Slice, map_tensor, read_header
from flare.prepare.random_tensors import DESCRIPTION, RandomTensors
from flare.prepare.source_path import stamped
from flare.recipes.source import LocalCheckpoint

if TYPE_CHECKING:
    import torch

INDEX = "model.safetensors.index.json"


class SafetensorsCheckpoint(Checkpoint):
    """A directory with one safetensors file, or several listed in an index.

    Raises: CheckpointError when a file is missing, truncated, or disagrees with the index.
    """

    def __init__(self, checkpoint: Path | LocalCheckpoint) -> None:
        local = stamped(checkpoint)
        directory = local.path
        config = read_json(directory / "config.json")
        if config is None:
            raise CheckpointError(f"{directory} holds no config.json", field="checkpoint")
        self.config: Mapping[str, Any] = config
        self.revision = local.revision
        description = read_json(directory / DESCRIPTION)
        self._store: TensorStore = (
            _MappedFiles(directory) if description is None else RandomTensors(description)
        )
        self.tensors = self._store.tensors
        self.assets = read_assets(directory)

    def load(self, name: str) -> torch.Tensor:
        """One tensor, mapped from its file. Raises CheckpointError for an unknown name or element type."""
        return self._store.load(name)


class _MappedFiles:
    """The tensors of a directory's safetensors files."""

    def __init__(self, directory: Path) -> None:
        self._slices = _slices(directory)
        self.tensors = {name: slice_.info for name, slice_ in self._slices.items()}

    def load(self, name: str) -> torch.Tensor:
        known_tensor(self.tensors, name)
        return map_tensor(self._slices[name])


def _slices(directory: Path) -> dict[str, Slice]:
    index = read_json(directory / INDEX)
    if index is not None:
        return _indexed(directory, index)
    files = sorted(directory.glob("*.safetensors"))
    if len(files) != 1:
        found = f"{len(files)} safetensors files" if files else "no safetensors file"
        raise CheckpointError(f"{directory} holds {found} and no {INDEX}", field="checkpoint")
    return read_header(files[0])


def _indexed(directory: Path, index: Mapping[str, Any]) -> dict[str, Slice]:
    """The tensors of every file in the index, which must agree with it name by name."""
    listed = index.get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(file, str) for file in listed.values()):
        raise CheckpointError(f"{INDEX} has no weight_map of names to files", field="weight_map")
    slices: dict[str, Slice] = {}
    for file in sorted(set(listed.values())):
        if Path(file).name != file:
            raise CheckpointError(
                f"{INDEX} names {file!r}, which is not a file beside it", field="weight_map"
            )
        for name, slice_ in read_header(directory / file).items():
            if listed.get(name) != file:
                raise CheckpointError(f"{file} holds {name}, which {INDEX} does not place there", field=name)
            slices[name] = slice_
    missing = sorted(set(listed) - set(slices))
    if missing:
        raise CheckpointError(
            f"{INDEX} lists tensors that no file holds: {', '.join(missing)}", field=missing[0]
        )
    return slices

"""Checkpoints: configuration, named tensors and text assets, whatever file format they come from."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from flare.errors import CheckpointError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's header. `dtype` is the stored format by its own name: a safetensors code or a GGML type."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Assets:
    """What a checkpoint says besides weights; None where it says nothing.

    `tokenizer` holds the bytes of a `tokenizer.json`, `chat_template` Jinja source, `generation_config` the
    parsed file, `special_tokens` the strings a template may reference (`bos_token`, ...),
    `image_processor` the parsed configuration of what makes numbers of images.
    """

    tokenizer: bytes | None = None
    chat_template: str | None = None
    generation_config: Mapping[str, Any] | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    image_processor: Mapping[str, Any] | None = None


class TensorStore(Protocol):
    """Anything that tensors can be read from by name, one at a time."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Headers of all tensors, by name."""

    def load(self, name: str) -> torch.Tensor:
        """One tensor of the shape in its header. Raises CheckpointError for an unknown name."""


class Checkpoint(ABC):
    """An open checkpoint. Opening reads headers only.

    `config` has the fields of a Transformers `config.json`. `revision` names the exact content as its source
    knows it. Subclasses set the four attributes and read tensors.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    assets: Assets
    revision: str

    @abstractmethod
    def load(self, name: str) -> torch.Tensor:
        """One tensor on the CPU, in its stored element type (quantized formats: float32).

        Plain formats are mapped from the file, copy on write: pages are read on use, and dropped with the
        tensor. Nothing else of the checkpoint is read or kept.

        Raises: CheckpointError for an unknown name or a format that cannot be read.
        """

    def fingerprint(self) -> str:
        """SHA-256 over revision, configuration, tensor headers and assets: 64 hex digits."""
        headers = [(info.name, info.shape, info.dtype) for info in self.tensors.values()]
        tokenizer = hashlib.sha256(self.assets.tokenizer or b"").hexdigest()
        content = {
            "revision": self.revision,
            "config": dict(self.config),
            "tensors": sorted(headers),
            "tokenizer": tokenizer,
            "chat_template": self.assets.chat_template,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def known_tensor(tensors: Mapping[str, TensorInfo], name: str) -> TensorInfo:
    """The header of `name`. Raises CheckpointError naming it when the checkpoint has no such tensor."""
    if name not in tensors:
        raise CheckpointError(f"the checkpoint has no tensor {name}", field=name)
    return tensors[name]

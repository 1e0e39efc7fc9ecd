"""`random://`: a checkpoint of any geometry with random weights, to measure and test without a download.

`random://TYPE?layers=28&hidden=3072&heads=24&kv_heads=8&ffn=8192&vocab=128256&seed=1` takes a model type of
Transformers with some fields changed, `random://config.json?seed=1` a configuration from a file. Only the
description is written; weights are generated when preparation reads them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from flare.errors import CheckpointError
from flare.prepare.random_geometry import Geometry, read_geometry
from flare.prepare.random_tensors import DESCRIPTION
from flare.prepare.random_tokenizer import CHAT_TEMPLATE, byte_tokenizer
from flare.prepare.source_cache import cache_directory
from flare.recipes.source import LocalCheckpoint, ProgressReporter

_VERSION = 2  # of how tensors follow from a description


class RandomSource:
    """Describes a checkpoint in the cache directory; its revision hashes the description."""

    scheme = "random"

    def resolve(self, uri: str, pin: str | None, progress: ProgressReporter) -> LocalCheckpoint:
        """See `CheckpointSource`. Raises CheckpointError for a pin, and for a geometry that is none."""
        if pin is not None:
            raise CheckpointError(f"{uri}: random weights have no SHA-256 to pin", field="sha256")
        geometry = read_geometry(uri)
        files = _files(geometry)
        digest = hashlib.sha256(str(_VERSION).encode())
        for name in sorted(files):
            digest.update(f"{name}\0".encode() + hashlib.sha256(files[name]).digest())
        revision = digest.hexdigest()
        directory = cache_directory() / "random" / revision
        if not directory.is_dir():
            _write(directory, files)
        return LocalCheckpoint(path=directory, revision=revision, uri=uri)


def _files(geometry: Geometry) -> dict[str, bytes]:
    vocab_size = geometry.config.get("vocab_size")
    if not isinstance(vocab_size, int):
        raise CheckpointError("the configuration has no vocab_size", field="vocab_size")
    description = {
        "seed": geometry.seed,
        "deviation": geometry.deviation,
        "tensors": {name: list(shape) for name, shape in geometry.tensors.items()},
    }
    return {
        "config.json": json.dumps(geometry.config, indent=1).encode(),
        "tokenizer.json": byte_tokenizer(vocab_size),
        "tokenizer_config.json": json.dumps({"chat_template": CHAT_TEMPLATE}).encode(),
        DESCRIPTION: json.dumps(description).encode(),
    }


def _write(directory: Path, files: dict[str, bytes]) -> None:
    """All files or none: another process may write the same."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=directory.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        for name, data in files.items():
            (made / name).write_bytes(data)
        try:
            os.rename(made, directory)
        except OSError:
            if not directory.is_dir():
                raise

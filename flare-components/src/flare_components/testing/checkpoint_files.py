"""A checkpoint in the hub's layout, from tensors and the content of its other files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from flare_components.testing.quantized_checkpoint import WEIGHTS


def write_checkpoint(directory: Path, tensors: Mapping[str, Tensor], files: Mapping[str, object]) -> Path:
    """Write `tensors` to one safetensors file, and `files` beside it: text as it is, everything else as JSON.
    `directory` may exist; returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), directory / WEIGHTS, metadata={"format": "pt"})
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def without_constants(tensors: Mapping[str, Tensor], spread: float) -> dict[str, Tensor]:
    """Copies of `tensors`, with noise where all elements of one are equal: mistakes would not show there."""
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    for tensor in copies.values():
        if tensor.is_floating_point() and float(tensor.min()) == float(tensor.max()):
            tensor += torch.randn(tensor.shape) * spread
    return copies

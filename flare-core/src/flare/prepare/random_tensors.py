"""Weights that are generated when they are read: a checkpoint of any size that takes no room on disk."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from flare.corefile.store import default_threads
from flare.errors import CheckpointError
from flare.prepare.checkpoint import TensorInfo, known_tensor

if TYPE_CHECKING:
    import torch

DESCRIPTION = "random.json"
"""In place of safetensors files: seed, standard deviation and the shape of every tensor."""


class RandomTensors:
    """A `TensorStore` of the tensors in a description: BF16, of the scale of a model before training.

    Matrices are normal with the described deviation, norms' weights ones, biases zeros. A tensor depends on
    seed, name and shape only, not on what else is read. Raises CheckpointError for another description.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        try:
            self._seed, self._deviation = int(description["seed"]), float(description["deviation"])
            self.tensors: Mapping[str, TensorInfo] = {
                name: TensorInfo(name, tuple(int(extent) for extent in shape), "BF16")
                for name, shape in description["tensors"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"{DESCRIPTION} is not a description of random weights: {error!r}", field=DESCRIPTION
            ) from error

    def load(self, name: str) -> torch.Tensor:
        """Generate one tensor. Raises CheckpointError for an unknown name."""
        import torch

        shape = known_tensor(self.tensors, name).shape
        if len(shape) < 2:
            fill = 0.0 if name.endswith("bias") else 1.0
            return torch.full(shape, fill, dtype=torch.bfloat16)
        # A piece at a time, each with a generator of its own: a large embedding in float32 would be twice the
        # tensor, and one thread would need minutes for a large model.
        tensor = torch.empty(shape, dtype=torch.bfloat16)
        rows = max(1, _PIECE // max(1, math.prod(shape[1:])))

        def fill_piece(numbered: tuple[int, torch.Tensor]) -> None:
            number, piece = numbered
            digest = hashlib.sha256(f"{self._seed}\0{name}\0{number}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
            piece.copy_(torch.randn(piece.shape, generator=generator).mul_(self._deviation))

        with ThreadPoolExecutor(default_threads(), thread_name_prefix="random") as pool:
            for _ in pool.map(fill_piece, enumerate(tensor.split(rows))):
                pass
        return tensor


_PIECE = 1 << 20

"""Transforms that make one tensor of all experts' tensors.

Sources come expert by expert; `parts` consecutive ones belong to one expert (gate and up, or down alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flare.prepare.tensor_transforms import Shape, groups

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class StackExperts:
    """Matrices [a, ...], [b, ...] of every expert stacked by rows, experts along a new first dimension:
    [experts, a + b, ...]. Codes, block scales and fixed streams of compressed scales alike."""

    parts: int = 1

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[experts, rows of all parts, what all sources share]."""
        experts = groups(shapes, self.parts)
        if any(not shape or shape[1:] != shapes[0][1:] for shape in shapes):
            raise ValueError(f"rows of shapes {sorted(set(shapes))} cannot be stacked")
        if any(expert != experts[0] for expert in experts):
            raise ValueError(f"experts have different shapes: {sorted(set(shapes))}")
        return (len(experts), sum(shape[0] for shape in experts[0]), *shapes[0][1:])

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor, filled from one source after the other."""
        import torch

        result = torch.empty(0)
        row = 0
        for index, tensor in enumerate(tensors):
            if index == 0:
                rows = sum(len(tensors[part]) for part in range(self.parts))
                shape = (len(tensors) // self.parts, rows, *tensor.shape[1:])
                result = torch.empty(shape, dtype=tensor.dtype)
            if index % self.parts == 0:
                row = 0
            result[index // self.parts, row : row + len(tensor)] = tensor
            row += len(tensor)
        return result


@dataclass(frozen=True)
class ExpertScales:
    """One number of every part: [experts, parts], or [experts] of single parts. `reciprocal` inverts them."""

    parts: int = 1
    reciprocal: bool = False

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[experts, parts] or [experts]."""
        experts = groups(shapes, self.parts)
        if any(shape not in ((), (1,)) for shape in shapes):
            raise ValueError(f"a scale of a matrix is one number, not {sorted(set(shapes))}")
        return (len(experts),) if self.parts == 1 else (len(experts), self.parts)

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new float32 tensor."""
        import torch

        scales = torch.stack([tensor.float().reshape(()) for tensor in tensors])
        scales = 1 / scales if self.reciprocal else scales
        return scales if self.parts == 1 else scales.reshape(-1, self.parts)


@dataclass(frozen=True)
class SharedScales:
    """One number for all parts of an expert, of stacked projections, or of a table's shards: [experts]."""

    parts: int = 1
    reciprocal: bool = False

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[experts]."""
        return ExpertScales(self.parts).shape(shapes)[:1]

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new float32 tensor. Raises ValueError when parts of one expert disagree."""
        scales = ExpertScales(1, self.reciprocal).apply(tensors).reshape(-1, self.parts)
        if bool((scales != scales[:, :1]).any()):
            raise ValueError("scales differ that have to be one, such as those of one input's projections")
        return scales[:, 0].contiguous()

"""Transforms of the scales that belong to packed matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flare.contract import DType
from flare.prepare.tensor_transforms import Shape, Transform, groups

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Reinterpret:
    """The bytes of what `inner` makes, read as `dtype` of the same size: exponents stored as U8 are
    F8_E8M0."""

    inner: Transform
    dtype: DType

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """That of `inner`."""
        return self.inner.shape(shapes)

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The same storage. Raises ValueError when elements have another size."""
        from flare.device.torch_types import TORCH_DTYPES

        made = self.inner.apply(tensors)
        if made.element_size() != self.dtype.itemsize:
            raise ValueError(f"elements of {made.dtype} cannot be read as {self.dtype.value}")
        return made.view(TORCH_DTYPES[self.dtype])


@dataclass(frozen=True)
class RowScales:
    """One number per matrix, repeated for every row of it: sources are (matrix, number) pairs, and the result
    is [rows of all matrices] in float32. Only the numbers are read. `reciprocal` inverts them."""

    reciprocal: bool = False

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[rows of all matrices]."""
        pairs = groups(shapes, 2)
        if any(len(matrix) != 2 or scale not in ((), (1,)) for matrix, scale in pairs):
            raise ValueError(f"{list(shapes)} are not matrices, each with one number")
        return (sum(matrix[0] for matrix, _ in pairs),)

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor."""
        import torch

        rows = torch.tensor([len(tensors[index]) for index in range(0, len(tensors), 2)])
        scales = torch.stack([tensors[index].float().reshape(()) for index in range(1, len(tensors), 2)])
        return (1 / scales if self.reciprocal else scales).repeat_interleave(rows)


@dataclass(frozen=True)
class BlockScales:
    """Scales of blocks of `block_rows` rows, put together by `inner`: sources are (matrix, scales) pairs, of
    which `parts` are stacked by rows. All but the last of a stack need whole blocks. Only the scales are
    read."""

    block_rows: int
    parts: int
    inner: Transform

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """That of `inner` for the scales."""
        pairs = groups(shapes, 2)
        for index, (matrix, scales) in enumerate(pairs):
            if not matrix or not scales or scales[0] != -(-matrix[0] // self.block_rows):
                raise ValueError(
                    f"scales {scales} are not those of blocks of {self.block_rows} rows of {matrix}"
                )
            last = index % self.parts == self.parts - 1
            if not last and matrix[0] % self.block_rows:
                raise ValueError(
                    f"{matrix[0]} rows end inside a block of {self.block_rows} and cannot be stacked"
                )
        return self.inner.shape(shapes[1::2])

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor."""
        return self.inner.apply([tensors[index] for index in range(1, len(tensors), 2)])

"""How a model tensor is made of checkpoint tensors. A transform is data: equal ones compare equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


class Transform(Protocol):
    """Makes one tensor of several."""

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The result's shape. Raises ValueError when sources of these shapes do not fit."""

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result; its shape is `shape` of the sources' shapes. A source is read each time it is indexed
        and let go with the tensor, so a transform of many sources takes them one after the other."""


def groups(shapes: Sequence[Shape], size: int) -> list[tuple[Shape, ...]]:
    """`size` consecutive ones at a time. Raises ValueError when there are none or some are left over."""
    if not shapes or len(shapes) % size:
        raise ValueError(f"{len(shapes)} sources do not come {size} at a time")
    return [tuple(shapes[start : start + size]) for start in range(0, len(shapes), size)]


@dataclass(frozen=True)
class Identity:
    """The single source itself."""

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The source's shape."""
        if len(shapes) != 1:
            raise ValueError(f"identity takes one source, got {len(shapes)}")
        return shapes[0]

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The source, not copied."""
        return tensors[0]


@dataclass(frozen=True)
class ConcatRows:
    """The sources stacked along the first dimension: [a, ...] and [b, ...] give [a + b, ...]."""

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The sum of first dimensions, then the dimensions all sources share."""
        if not shapes or any(not shape or shape[1:] != shapes[0][1:] for shape in shapes):
            raise ValueError(f"rows of shapes {list(shapes)} cannot be stacked")
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor."""
        import torch

        return torch.cat(list(tensors))


@dataclass(frozen=True)
class FlattenRows:
    """The rows of the single source as vectors: [a, b, c, ...] gives [a, b * c * ...]. A convolution whose
    stride is its extent is the linear layer of this weight.

    channels_last: the first dimension of a row comes behind the others, as where the convolution's input has
    the channels of one place together.
    """

    channels_last: bool = False

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[rows, elements of a row]."""
        if len(shapes) != 1 or len(shapes[0]) < 2:
            raise ValueError(f"{list(shapes)} is not one source of rows")
        return shapes[0][0], math.prod(shapes[0][1:])

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A view; with channels last a new tensor."""
        rows = tensors[0]
        return (rows.movedim(1, -1) if self.channels_last else rows).flatten(1)


@dataclass(frozen=True)
class HeadRows:
    """Rows `start` to `stop` of every head, where the single source is `heads` heads of `rows` rows:
    [heads * rows, ...] gives [heads, stop - start, ...]."""

    heads: int
    rows: int
    start: int
    stop: int

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[heads, stop - start, ...]."""
        if len(shapes) != 1 or not shapes[0] or shapes[0][0] != self.heads * self.rows:
            raise ValueError(f"{list(shapes)} is not {self.heads} heads of {self.rows} rows")
        return self.heads, self.stop - self.start, *shapes[0][1:]

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A view."""
        return tensors[0].unflatten(0, (self.heads, -1))[:, self.start : self.stop]


@dataclass(frozen=True)
class PairsToHalves:
    """Rows of each head from rotary pairs (0, 1), (2, 3), ... to rotary halves (0, d/2), (1, d/2 + 1), ...

    GGUF files of some architectures store query and key projections for kernels that rotate neighbouring
    rows; Transformers rotates the first half of a head against the second. The source is
    [heads * head_dim, ...]: row 2i + j of a head becomes row j * head_dim / 2 + i.
    """

    heads: int

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The source's shape."""
        if len(shapes) != 1 or not shapes[0] or shapes[0][0] % (2 * self.heads):
            raise ValueError(f"{list(shapes)} is not {self.heads} heads of an even number of rows")
        return shapes[0]

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor with its rows moved."""
        rows = tensors[0]
        paired = rows.reshape(self.heads, rows.shape[0] // self.heads // 2, 2, *rows.shape[1:])
        return paired.transpose(1, 2).reshape(rows.shape)

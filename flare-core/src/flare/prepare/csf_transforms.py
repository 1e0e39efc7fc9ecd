"""Transforms of compressed FP4 block scales (CSF): the exceptions of all experts as one stream.

Sources are (fixed, exceptions) pairs, expert by expert, `parts` pairs of one expert stacked by rows. `fixed`
U8 [rows / 16, 16 * (1 + columns / 2)] gives a matrix's size; an exception is `byte << 24 | row * columns +
column`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flare.prepare.tensor_transforms import Shape, groups

if TYPE_CHECKING:
    import torch

_SLAB = 16
_POSITIONS = 1 << 24
_HIGHEST_BASE = 240


@dataclass(frozen=True)
class CsfExceptions:
    """U32 [exceptions of all]: sorted within an expert, with positions in its stacked matrix."""

    parts: int = 1

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[exceptions of all sources]."""
        _check(shapes, self.parts)
        return (sum(shape[0] for shape in shapes[1::2]),)

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor."""
        import torch

        return torch.cat([words for words, _ in _moved(tensors, self.parts)]).to(torch.uint32)


@dataclass(frozen=True)
class CsfStarts:
    """I32 [experts * slabs + 1]: where the exceptions of each slab of 16 rows begin, and where the last
    end."""

    parts: int = 1

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """[slabs of all sources + 1]."""
        _check(shapes, self.parts)
        return (sum(shape[0] for shape in shapes[::2]) + 1,)

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor."""
        import torch

        counts = [
            torch.bincount(slab, minlength=slabs)
            for slab, slabs in ((slab, len(tensors[2 * i])) for i, (_, slab) in enumerate(_moved(tensors, 1)))
        ]
        return torch.nn.functional.pad(torch.cat(counts).cumsum(0), (1, 0)).to(torch.int32)


def _moved(tensors: Sequence[torch.Tensor], parts: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of every source its words I64 with positions behind the parts before it, and their slabs in the source.

    Raises ValueError for streams that no encoder writes.
    """
    import torch

    before = 0
    for index in range(0, len(tensors), 2):
        if index // 2 % parts == 0:
            before = 0
        slabs, width = tensors[index].shape
        columns = (width // _SLAB - 1) * 2
        exceptions = tensors[index + 1]
        if exceptions.dtype != torch.uint32:
            raise ValueError(f"exceptions of compressed scales are U32, not {exceptions.dtype}")
        words = exceptions.view(torch.int32).long() & 0xFFFFFFFF
        positions = words & (_POSITIONS - 1)
        if bool((tensors[index][:, :_SLAB] > _HIGHEST_BASE).any()):
            raise ValueError(f"compressed scales have a row base above {_HIGHEST_BASE}")
        if bool((positions.diff() <= 0).any()) or bool((positions >= slabs * _SLAB * columns).any()):
            raise ValueError("exceptions of compressed scales do not ascend or lie outside")
        yield words + before, positions // (_SLAB * columns)
        before += slabs * _SLAB * columns


def _check(shapes: Sequence[Shape], parts: int) -> None:
    experts = groups(shapes, 2 * parts)
    for fixed, exceptions in groups(shapes, 2):
        if len(fixed) != 2 or fixed[1] % _SLAB or fixed[1] != shapes[0][1] or len(exceptions) != 1:
            raise ValueError(
                f"{fixed} and {exceptions} are not the streams of compressed scales of one width"
            )
    columns = (shapes[0][1] // _SLAB - 1) * 2
    for expert in experts:
        if sum(fixed[0] for fixed in expert[::2]) * _SLAB * columns > _POSITIONS:
            raise ValueError(f"stacked scales have more than {_POSITIONS} elements")

"""Exceptions of compressed scales: bytes by their position in the matrix."""

from __future__ import annotations

import torch
from torch import Tensor

POSITIONS = 1 << 24
"""Elements that a 24-bit position reaches."""


def split(words: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    """words U32 [n] -> (positions I64 [n], bytes U8 [n]): the low 24 and the high 8 bits.

    Raises ValueError unless positions ascend strictly and are below `elements`.
    """
    if words.dtype != torch.uint32 or words.dim() != 1:
        raise ValueError(f"exceptions are U32 [n], not {words.dtype} {list(words.shape)}")
    positions, content = split_words(words)
    check(positions, elements)
    return positions, content


def split_words(words: Tensor) -> tuple[Tensor, Tensor]:
    """As `split`, without looking at the positions."""
    plain = words.view(torch.int32).long()
    return plain & (POSITIONS - 1), (plain >> 24 & 255).to(torch.uint8)


def check(positions: Tensor, elements: int) -> None:
    """Raises ValueError unless `positions` ascend strictly and are below `elements`."""
    if positions.numel() and (int(positions[-1]) >= elements or bool((positions.diff() <= 0).any())):
        raise ValueError(f"positions of exceptions ascend and are below {elements}")


def patch(scales: Tensor, positions: Tensor, content: Tensor) -> Tensor:
    """scales U8 [R, C] with `content` at the flat `positions`, in place."""
    scales.view(-1)[positions] = content
    return scales

"""Packed lanes with past tokens, idle lanes and padding rows, and operators held to their references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from precision import same_bits
from torch import Tensor

ROWS = 9
"""State rows; row 0 belongs to nobody, and so do those that no lane has."""

MIXES: dict[str, list[tuple[int, int]]] = {
    "first token": [(1, 0)],
    "second token": [(1, 1)],
    "one token each": [(1, 5), (1, 0), (1, 23)],
    "a prompt": [(37, 0)],
    "after a past": [(21, 18)],
    "two tokens": [(2, 0), (2, 3)],
    "mixed": [(1, 20), (13, 0), (1, 2), (5, 7), (70, 31)],
    "nobody": [(0, 4)],
}
"""(new tokens, tokens before them) of every lane."""


class Ragged:
    """Operands that say who owns which rows. Two idle lanes own one padding row each; three more rows belong
    to no lane."""

    def __init__(self, lanes: list[tuple[int, int]], seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.lanes = lanes
        counts = [count for count, _ in lanes] + [1, 1]
        self.live = sum(count for count, _ in lanes)
        self.rows = sum(counts) + 3
        self.query_start = torch.tensor([0, *counts]).cumsum(0).int()
        contexts = [count + past if count else 0 for count, past in lanes]
        self.context_lens = torch.tensor([*contexts, 0, 0]).int()
        owned = (1 + torch.randperm(ROWS - 1, generator=self.generator)[: len(lanes)]).tolist()
        self.live_rows = torch.tensor([*owned, -1, -1]).int()

    def packed(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """[rows, *shape], normal; padding is NaN."""
        x = torch.randn(self.rows, *shape, generator=self.generator)
        x[self.live :] = torch.nan
        return x.to(dtype)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype)

    def state(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """[ROWS, *shape], a strided view with NaN between the rows, and in all rows that no lane owns."""
        width = torch.Size(shape).numel()
        blocks = torch.full((ROWS, width + 32), torch.nan).to(dtype)
        view = blocks[:, 16 : 16 + width].view(ROWS, *shape)
        for row in self.live_rows.tolist():
            if row >= 0:
                view[row] = self.normal(*shape, dtype=dtype)
        return view

    def paged(self, tokens: int, *shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Pages [P, tokens, *shape] of every lane's whole context, normal, and the page table."""
        lane_pages = max(-(-int(self.context_lens.max()) // tokens), 1)
        table = torch.zeros(len(self.query_start) - 1, lane_pages, dtype=torch.int32)
        count = len(self.lanes) * lane_pages
        table[: len(self.lanes)] = (1 + torch.randperm(count, generator=self.generator)).view(-1, lane_pages)
        blocks = torch.full((count + 1, 2, tokens, *shape), torch.nan).to(dtype)
        blocks[1:, 1] = self.normal(count, tokens, *shape, dtype=dtype)
        return blocks[:, 1], table


def whole(view: Tensor) -> Tensor:
    """All bytes of a view's storage."""
    return torch.empty(0, dtype=torch.uint8).set_(view.untyped_storage())


def results_of(call: Callable[..., Any], args: tuple[Any, ...], written: tuple[int, ...]) -> list[Tensor]:
    """Results of a call, and the operands it wrote, on copies that lie in memory as the originals do."""
    copies = list(args)
    for place in written:
        storage = whole(args[place]).clone().untyped_storage()
        typed = torch.empty(0, dtype=args[place].dtype).set_(storage)
        copies[place] = typed.as_strided(
            args[place].shape, args[place].stride(), args[place].storage_offset()
        )
    out = call(*copies)
    results = [out] if isinstance(out, Tensor) else list(out or ())
    return results + [copies[place] for place in written]


def agree(
    op: str,
    reference: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    written: tuple[int, ...],
    tolerance: float,
) -> None:
    """Operator and reference give the same, and write the same; what neither may write keeps its bytes."""
    actual = results_of(getattr(torch.ops.flare, op), args, written)
    expected = results_of(reference, args, written)
    for a, b in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        exact = not a.is_floating_point()
        bound = 0.0 if exact else tolerance
        torch.testing.assert_close(a, b, atol=bound, rtol=bound, equal_nan=True)


def leaves_others_alone(op: str, lanes: Ragged, args: tuple[Any, ...], place: int) -> None:
    """The state operand at `place` keeps every byte that no live lane owns."""
    after = results_of(getattr(torch.ops.flare, op), args, (place,))[-1]
    before = whole(args[place]).clone()
    view = torch.empty(0, dtype=args[place].dtype).set_(before.untyped_storage())
    restored = view.as_strided(args[place].shape, args[place].stride(), args[place].storage_offset())
    for lane, row in enumerate(lanes.live_rows.tolist()):
        if row >= 0 and lanes.lanes[lane][0]:
            restored[row] = after[row]
    assert same_bits(whole(after), before)

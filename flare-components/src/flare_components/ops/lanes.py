"""Which rows of a packed batch belong to which lane, for the CPU kernels of operators with state.

Equal for every layer of a step, so made once from the lengths. A lane is active when it has rows and a state
row; the others are padding, whose rows are computed as zero and whose state is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start:stop` are lane `lane`, with its state in row `row`; `past` tokens came before them."""

    lane: int
    start: int
    stop: int
    row: int
    past: int

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Lanes:
    """Active lanes. `single` have one row each, `longer` more. For the single lanes: rows i64[S] in the batch
    (None when they are all rows in order) and state_rows i64[S]."""

    single: tuple[Span, ...]
    longer: tuple[Span, ...]
    rows: Tensor | None
    state_rows: Tensor
    complete: bool

    @property
    def all(self) -> tuple[Span, ...]:
        """Every active lane."""
        return self.single + self.longer


@lru_cache(maxsize=4)
def _lanes(rows: int, starts: tuple[int, ...], owners: tuple[int, ...], contexts: tuple[int, ...]) -> Lanes:
    spans = [
        Span(lane, starts[lane], starts[lane + 1], row, contexts[lane] - starts[lane + 1] + starts[lane])
        for lane, row in enumerate(owners)
        if row >= 0 and starts[lane + 1] > starts[lane]
    ]
    single = tuple(span for span in spans if span.count == 1)
    every = len(single) == rows
    return Lanes(
        single=single,
        longer=tuple(span for span in spans if span.count > 1),
        rows=None if every else torch.tensor([span.start for span in single], dtype=torch.int64),
        state_rows=torch.tensor([span.row for span in single], dtype=torch.int64),
        complete=sum(span.count for span in spans) == rows,
    )


def active_lanes(
    rows: int, query_start: Tensor, live_rows: Tensor, context_lens: Tensor | None = None
) -> Lanes:
    """Lanes of a batch of `rows` rows.

    query_start i32[L + 1]: lane l owns rows query_start[l] to query_start[l + 1]; live_rows i32[L], -1 idle;
    context_lens i32[L]: tokens including these rows. Without it `past` has no meaning.
    """
    starts, owners = tuple(query_start.tolist()), tuple(live_rows.tolist())
    contexts = starts[1:] if context_lens is None else tuple(context_lens.tolist())
    return _lanes(rows, starts, owners, contexts)


def attending(rows: int, query_start: Tensor, context_lens: Tensor) -> Lanes:
    """Lanes that have tokens, context_lens i32[L] of them (0: inactive); none of their state is in rows."""
    return active_lanes(rows, query_start, context_lens - 1, context_lens)


def check_lanes(query_start: Tensor, live_rows: Tensor, context_lens: Tensor | None = None) -> None:
    """What every fake kernel demands of its lane operands."""
    torch._check(live_rows.dim() == 1, lambda: "live_rows is [L]")
    torch._check(query_start.shape[0] == live_rows.shape[0] + 1, lambda: "query_start is [L + 1]")
    if context_lens is not None:
        torch._check(context_lens.shape == live_rows.shape, lambda: "context_lens is [L]")

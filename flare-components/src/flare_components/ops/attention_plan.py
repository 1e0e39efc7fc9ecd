"""Rows, pages and masks of a ragged attention call: equal for every layer of a step, so made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

# Lanes share a decode call while the keys they are padded by cost less than another call (about 40 us, or
# 0.1 us a key).
_MAX_PADDING = 256

# Widths are multiples of this: then BF16 keys that are masked away leave every bit of a result as it is.
_WIDTH_UNIT = 16

QUERY_BLOCK = 64
"""Query rows of one prefill call: smaller blocks skip more of the causal triangle, larger ones call less."""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Lanes with one query each that run in one call, padded to `width` keys.

    rows: i64[G] rows of q, or None when they are all rows of q in order. entries: i64[G * pages] positions
    in the flattened page table. blank: i64[B] key slots of [G * pages * T] that lie below `width` and past
    their lane's context. mask: f32[G, 1, 1, width]. Both are None when no lane is padded.
    """

    lanes: int
    rows: Tensor | None
    entries: Tensor
    width: int
    blank: Tensor | None
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class PrefillLane:
    """Rows `start:stop` of q are one lane, with `context` keys including theirs. entries: i64[pages]."""

    start: int
    stop: int
    context: int
    entries: Tensor


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What to run. `complete` says that every row of q belongs to an active lane."""

    decode: tuple[DecodeGroup, ...]
    prefill: tuple[PrefillLane, ...]
    complete: bool


@lru_cache(maxsize=2)
def attention_plan(
    rows: int, starts: tuple[int, ...], contexts: tuple[int, ...], page_tokens: int, lane_pages: int
) -> AttentionPlan:
    """Plan for q of `rows` rows. Depends on lengths alone, never on which pages a lane holds."""
    single: list[_Lane] = []
    prefill: list[PrefillLane] = []
    covered = 0
    for lane, context in enumerate(contexts):
        start, stop = starts[lane], starts[lane + 1]
        if context <= 0 or start == stop:
            continue
        assert stop - start <= context <= lane_pages * page_tokens, "context does not hold the lane's queries"
        covered += stop - start
        if stop - start == 1:
            single.append(_Lane(lane, start, context))
        else:
            entries = torch.arange(-(-context // page_tokens)).add_(lane * lane_pages)
            prefill.append(PrefillLane(start, stop, context, entries))
    decode = tuple(_group(lanes, rows, page_tokens, lane_pages) for lanes in _similar(single))
    return AttentionPlan(decode, tuple(prefill), covered == rows)


@dataclass(frozen=True, slots=True)
class _Lane:
    lane: int
    row: int
    context: int


def _similar(lanes: Sequence[_Lane]) -> list[list[_Lane]]:
    """Split lanes into groups of similar context."""
    groups: list[list[_Lane]] = []
    padding = 0
    for lane in sorted(lanes, key=lambda lane: -lane.context):
        padding += groups[-1][0].context - lane.context if groups else 0
        if not groups or padding > _MAX_PADDING:
            groups.append([])
            padding = 0
        groups[-1].append(lane)
    return [sorted(group, key=lambda lane: lane.row) for group in groups]


def _group(lanes: Sequence[_Lane], rows: int, page_tokens: int, lane_pages: int) -> DecodeGroup:
    width = -(-max(lane.context for lane in lanes) // _WIDTH_UNIT) * _WIDTH_UNIT
    pages = -(-width // page_tokens)
    entries, blank = [], []
    for number, lane in enumerate(lanes):
        # Past its context a lane repeats its own last page: another's page is never read.
        last = (lane.context - 1) // page_tokens
        entries += [lane.lane * lane_pages + min(page, last) for page in range(pages)]
        blank += [number * pages * page_tokens + key for key in range(lane.context, width)]
    mask = None
    if blank:
        contexts = torch.tensor([lane.context for lane in lanes]).view(-1, 1, 1, 1)
        mask = torch.zeros(len(lanes), 1, 1, width).masked_fill_(torch.arange(width) >= contexts, -torch.inf)
    return DecodeGroup(
        lanes=len(lanes),
        rows=None if len(lanes) == rows else torch.tensor([lane.row for lane in lanes]),
        entries=torch.tensor(entries),
        width=width,
        blank=torch.tensor(blank) if blank else None,
        mask=mask,
    )


@lru_cache(maxsize=2)
def _ramp(capacity: int, block: int) -> Tensor:
    keys = torch.arange(capacity + block) - capacity
    hidden = keys > torch.arange(block).unsqueeze(1)
    return torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)


def causal_mask(past: int, queries: int, block: int = QUERY_BLOCK) -> Tensor:
    """f32[queries, past + queries]: query i sees keys 0 to past + i. A view of one cached ramp for up to
    `block` queries."""
    assert 0 < queries <= block
    capacity = max(1024, 1 << (past - 1).bit_length()) if past else 1024
    return _ramp(capacity, block)[:queries, capacity - past : capacity + queries]

"""`flare::slot_mapping`, `flare::paged_kv_write` and `flare::paged_write`: where a token lives in the pages,
and writing it there.

A slot is `page * page_tokens + offset`. Pages are strided views [P, T, ...]: the pages of all layers are one
buffer, so the first stride is a whole page and the inner dimensions are contiguous.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from flare_components.ops.schema import define


def slot_mapping(page_table: Tensor, positions: Tensor, lanes: Tensor, page_tokens: int) -> Tensor:
    """page_table i32[L, MP], positions and lanes i32 or i64 [N] -> i64[N] slots; -1 where lanes is negative,
    whatever the position there holds."""
    padding = lanes.lt(0)
    position = positions.masked_fill(padding, 0).long()
    page = page_table[lanes.clamp_min(0).long(), position // page_tokens].long()
    return (page * page_tokens + position % page_tokens).masked_fill_(padding, -1)


@lru_cache(maxsize=2)
def _destination(slots: tuple[int, ...], page_tokens: int) -> tuple[Tensor | None, Tensor, Tensor]:
    """Rows to keep (None: all), and their pages and offsets. Every layer of a step asks the same."""
    kept = [row for row, slot in enumerate(slots) if slot >= 0]
    slot = torch.tensor([slots[row] for row in kept], dtype=torch.int64)
    rows = None if len(kept) == len(slots) else torch.tensor(kept, dtype=torch.int64)
    return rows, slot // page_tokens, slot % page_tokens


def paged_kv_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, slot_mapping: Tensor) -> None:
    """Write row i of k and v [N, KVH, D] to slot_mapping[i] of the pages; a negative slot writes nothing."""
    rows, page, offset = _destination(tuple(slot_mapping.tolist()), k_pages.shape[1])
    if rows is not None:
        k, v = k.index_select(0, rows), v.index_select(0, rows)
    k_pages.index_put_((page, offset), k)
    v_pages.index_put_((page, offset), v)


def paged_write(entries: Tensor, pages: Tensor, slot_mapping: Tensor) -> None:
    """As `paged_kv_write`, of one thing: entries [N, ...], pages [P, T, ...]."""
    rows, page, offset = _destination(tuple(slot_mapping.tolist()), pages.shape[1])
    pages.index_put_((page, offset), entries if rows is None else entries.index_select(0, rows))


def _fake_mapping(page_table: Tensor, positions: Tensor, lanes: Tensor, page_tokens: int) -> Tensor:
    torch._check(positions.shape == lanes.shape and lanes.dim() == 1, lambda: "positions and lanes are [N]")
    return torch.empty_like(lanes, dtype=torch.int64)


def _fake_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, slot_mapping: Tensor) -> None:
    torch._check(
        k.shape[1:] == k_pages.shape[2:] and v.shape[1:] == v_pages.shape[2:], lambda: "heads differ"
    )
    torch._check(k.dtype == k_pages.dtype and v.dtype == v_pages.dtype, lambda: "pages are of another type")
    torch._check(k.shape[0] == v.shape[0] == slot_mapping.shape[0], lambda: "rows differ")


def _fake_entries(entries: Tensor, pages: Tensor, slot_mapping: Tensor) -> None:
    torch._check(entries.shape[1:] == pages.shape[2:], lambda: "entries are [N, ...], pages [P, T, ...]")
    torch._check(entries.dtype == pages.dtype, lambda: "pages are of another type")
    torch._check(entries.shape[0] == slot_mapping.shape[0], lambda: "rows differ")


define(
    "slot_mapping(Tensor page_table, Tensor positions, Tensor lanes, int page_tokens) -> Tensor",
    cpu=slot_mapping,
    fake=_fake_mapping,
)
define(
    "paged_kv_write(Tensor k, Tensor v, Tensor(a!) k_pages, Tensor(b!) v_pages, Tensor slot_mapping) -> ()",
    cpu=paged_kv_write,
    fake=_fake_write,
)
define(
    "paged_write(Tensor entries, Tensor(a!) pages, Tensor slot_mapping) -> ()",
    cpu=paged_write,
    fake=_fake_entries,
)

"""`flare::latent_attention`: attention over tokens that are cached as one latent vector for all heads.

Keys and values of a head are matrices of the head times the latent. Two forms compute the same up to
rounding. *Absorbed*: queries are carried into the space of latents, all heads attend to the latents
themselves, and values are made of what was read. *Expanded*: keys and values are made of every latent once,
and attended to head by head. A lane takes the form with fewer multiplications, which follows from its number
of rows, its past and the widths alone; rows that select tokens are absorbed, for no two read the same.
"""

# Source: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1.

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from flare_components.ops.attention import causal_attention
from flare_components.ops.attention_plan import causal_mask
from flare_components.ops.lanes import Span, attending, check_lanes
from flare_components.ops.linear import linear
from flare_components.ops.schema import define
from flare_components.ops.selected_attention import chosen_tokens

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

# Rows in the space of latents at once, and of them those that attend to one stretch of latents together (for
# every head of every row is a query of its own); queries of a head together where heads have their own keys;
# bytes of such keys and values at once. They bound the memory of a long prefill.
_ROWS = 64
_ROWS_TOGETHER = 4
_QUERIES = 256
_EXPANDED_BYTES = 16 << 20


def latent_attention(
    q: Tensor,
    key_up: Tensor,
    value_up: Tensor,
    pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    scale: float,
) -> Tensor:
    """Attention of N rows over the latents of their selected groups and of the open group.

    q [N, H, K]; key_up [H, K, R] and value_up [H, V, R]: what makes keys and values of a latent, head by
    head; pages [P, T, R], strided in P: latents, of which a page holds whole groups of `group` tokens;
    selected i32[N, B]: groups as `select_groups` returns them; page_table i32[L, MP]; query_start i32[L + 1];
    context_lens i32[L]: tokens including these rows, whose latents were written before; 0 for an inactive
    lane. Scores and softmax are FP32. Returns [N, H, V]; rows of no active lane are zero.
    """
    heads, width, rank = value_up.shape
    out = q.new_zeros(q.shape[0], heads, width)
    lanes = attending(q.shape[0], query_start, context_lens)
    # Rows that see no more tokens than this attend to all of them.
    budget = (selected.shape[1] + 1) * group - 1
    reader = _Reader(pages, page_table, group, budget, scale)
    if lanes.single:
        rows = slice(None) if lanes.rows is None else lanes.rows
        out[rows] = _absorbed(q[rows], key_up, value_up, selected[rows], lanes.single, reader)
    for span in lanes.longer:
        done = 0
        dense = _part(span, 0, min(max(budget - span.past, 0), span.count))
        if dense.count and _expands(dense, q.shape[2] + width, rank):
            _expanded(q, key_up, value_up, reader.latents(dense), dense, scale, out)
            done = dense.count
        for start in range(done, span.count, _ROWS):
            part = _part(span, start, min(start + _ROWS, span.count))
            rows = slice(part.start, part.stop)
            out[rows] = _absorbed(q[rows], key_up, value_up, selected[rows], (part,), reader)
    return out


def _part(span: Span, start: int, stop: int) -> Span:
    """Rows start to stop of a lane, counted from its first."""
    return Span(span.lane, span.start + start, span.start + stop, span.row, span.past + start)


def _expands(span: Span, width: int, rank: int) -> bool:
    """Whether a lane takes fewer multiplications expanded. width: of a key and a value together."""
    pairs = span.count * span.past + span.count * (span.count + 1) // 2
    expanded = (span.past + span.count) * rank * width + pairs * width
    absorbed = span.count * rank * width + pairs * 2 * rank
    return expanded < absorbed


def _absorbed(
    q: Tensor,
    key_up: Tensor,
    value_up: Tensor,
    selected: Tensor,
    spans: tuple[Span, ...],
    reader: _Reader,
) -> Tensor:
    """The rows of `spans` alone: q [n, H, K], selected i32[n, B] -> [n, H, V]."""
    carried = torch.bmm(q.transpose(0, 1), key_up).transpose(0, 1).contiguous()
    read, start = torch.empty_like(carried), 0
    for span in spans:
        rows = slice(start, start + span.count)
        reader.read(carried[rows], selected[rows], span, read[rows])
        start = rows.stop
    # Values from the left: products with few rows on the left take a slow kernel.
    return torch.bmm(value_up, read.permute(1, 2, 0).contiguous()).permute(2, 0, 1)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Attends to the latents of a lane themselves."""

    pages: Tensor
    page_table: Tensor
    group: int
    budget: int
    scale: float

    def latents(self, span: Span) -> Tensor:
        """[tokens, R]: all that the last row of a lane sees."""
        tokens, page_tokens = span.past + span.count, self.pages.shape[1]
        page = self.page_table[span.lane, : -(-tokens // page_tokens)]
        return self.pages.index_select(0, page).flatten(0, 1)[:tokens]

    def read(self, q: Tensor, selected: Tensor, span: Span, out: Tensor) -> None:
        """q [n, H, R], selected i32[n, B]: the rows of one lane; written to out [n, H, R]."""
        dense = min(max(self.budget - span.past, 0), span.count)
        if dense:
            latents = self.latents(_part(span, 0, dense))
        for start in range(0, dense, _ROWS_TOGETHER):
            rows = slice(start, min(start + _ROWS_TOGETHER, dense))
            mask = None
            if rows.stop - start > 1:
                mask = causal_mask(span.past + start, rows.stop - start, _ROWS_TOGETHER)
                mask = mask.repeat_interleave(q.shape[1], 0)
            out[rows] = self._attend(q[rows], latents[: span.past + rows.stop], mask)
        last = torch.arange(span.past + dense, span.past + span.count).unsqueeze(1)
        table, page_tokens = self.page_table[span.lane].long(), self.pages.shape[1]
        # No two rows read the same, and one at a time needs no mask and little memory.
        for row, tokens in enumerate(chosen_tokens(selected[dense:].long(), last, self.group), dense):
            token = tokens[tokens >= 0]
            latents = self.pages[table[token // page_tokens], token % page_tokens]
            out[row] = self._attend(q[row], latents, None)

    def _attend(self, q: Tensor, latents: Tensor, mask: Tensor | None) -> Tensor:
        """q [..., R] contiguous, latents [tokens, R], mask f32[queries, tokens] -> of q's shape."""
        kv = latents[None, None]
        queries = q.view(1, 1, -1, q.shape[-1])
        return _flash(queries, kv, kv, attn_mask=mask, scale=self.scale)[0].view(q.shape)


def _expanded(
    q: Tensor,
    key_up: Tensor,
    value_up: Tensor,
    latents: Tensor,
    span: Span,
    scale: float,
    out: Tensor,
) -> None:
    """Write the rows of `span` in out [N, H, V]; latents [tokens, R]."""
    tokens, rows = latents.shape[0], slice(span.start, span.stop)
    # The kernel takes keys and values of one width, and is fastest when those of a head lie together.
    width = max(key_up.shape[1], value_up.shape[1])
    block = max(1, _EXPANDED_BYTES // (2 * width * tokens * q.element_size()))
    for start in range(0, q.shape[1], block):
        part = slice(start, start + block)
        made = (
            linear(latents, up[part].flatten(0, 1), None).view(tokens, -1, up.shape[1])
            for up in (key_up, value_up)
        )
        queries, keys, values = (
            pad(x.transpose(0, 1), (0, width - x.shape[2])).contiguous().unsqueeze(0)
            for x in (q[rows, part], *made)
        )
        target = out[rows, part].transpose(0, 1).unsqueeze(0)
        causal_attention(queries, keys, values, span.past, scale, target, _QUERIES)


def _fake(
    q: Tensor,
    key_up: Tensor,
    value_up: Tensor,
    pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    scale: float,
) -> Tensor:
    torch._check(q.dim() == 3 and pages.dim() == 3, lambda: "q is [N, H, K], pages are [P, T, R]")
    torch._check(key_up.shape == (*q.shape[1:], pages.shape[2]), lambda: "key_up is [H, K, R]")
    torch._check(
        value_up.dim() == 3 and value_up.shape[::2] == key_up.shape[::2], lambda: "value_up is [H, V, R]"
    )
    types = {operand.dtype for operand in (q, key_up, value_up, pages)}
    torch._check(len(types) == 1, lambda: "q, the weights and pages differ in type")
    torch._check(selected.dim() == 2 and selected.shape[0] == q.shape[0], lambda: "selected is [N, B]")
    torch._check(pages.shape[1] % group == 0, lambda: "a page holds whole groups")
    torch._check(page_table.shape[0] == context_lens.shape[0], lambda: "page_table is [L, MP]")
    check_lanes(query_start, context_lens)
    return q.new_empty(*q.shape[:2], value_up.shape[1])


define(
    "latent_attention(Tensor q, Tensor key_up, Tensor value_up, Tensor pages, Tensor selected, "
    "Tensor page_table, Tensor query_start, Tensor context_lens, int group, float scale) -> Tensor",
    cpu=latent_attention,
    fake=_fake,
)

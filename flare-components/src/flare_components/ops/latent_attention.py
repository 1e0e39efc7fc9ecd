"""`flare::latent_attention`: attention over tokens that are cached as one latent vector for all heads.

Keys and values of head h are the head's rows of `up` times the latent. Two forms compute the same up to
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
    up: Tensor,
    pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    scale: float,
) -> Tensor:
    """Attention of N rows over the latents of their selected groups and of the open group.

    q [N, H, K]; up [H * (K + V), R]: of every head the rows that make its key, then those that make its
    value; pages [P, T, R], strided in P: latents, of which a page holds whole groups of `group` tokens;
    selected i32[N, B]: groups as `select_groups` returns them; page_table i32[L, MP]; query_start i32[L + 1];
    context_lens i32[L]: tokens including these rows, whose latents were written before; 0 for an inactive
    lane. Scores and softmax are FP32. Returns [N, H, V]; rows of no active lane are zero.
    """
    heads, width = q.shape[1:]
    weight = up.view(heads, -1, up.shape[1])
    out = q.new_zeros(q.shape[0], heads, weight.shape[1] - width)
    lanes = attending(q.shape[0], query_start, context_lens)
    # Rows that see no more tokens than this attend to all of them.
    budget = (selected.shape[1] + 1) * group - 1
    reader = _Reader(pages, page_table, group, budget, scale)
    if lanes.single:
        rows = slice(None) if lanes.rows is None else lanes.rows
        out[rows] = _absorbed(q[rows], weight, selected[rows], lanes.single, reader)
    for span in lanes.longer:
        done = 0
        dense = _part(span, 0, min(max(budget - span.past, 0), span.count))
        if dense.count and _expands(dense, *weight.shape[1:]):
            _expanded(q, weight, reader.latents(dense), dense, scale, out)
            done = dense.count
        for start in range(done, span.count, _ROWS):
            part = _part(span, start, min(start + _ROWS, span.count))
            rows = slice(part.start, part.stop)
            out[rows] = _absorbed(q[rows], weight, selected[rows], (part,), reader)
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
    q: Tensor, weight: Tensor, selected: Tensor, spans: tuple[Span, ...], reader: _Reader
) -> Tensor:
    """The rows of `spans` alone: q [n, H, K], weight [H, K + V, R], selected i32[n, B] -> [n, H, V]."""
    keys, values = weight.split([q.shape[2], weight.shape[1] - q.shape[2]], 1)
    carried = torch.bmm(q.transpose(0, 1), keys).transpose(0, 1).contiguous()
    read, start = torch.empty_like(carried), 0
    for span in spans:
        rows = slice(start, start + span.count)
        reader.read(carried[rows], selected[rows], span, read[rows])
        start = rows.stop
    # Values from the left: products with few rows on the left take a slow kernel.
    return torch.bmm(values, read.permute(1, 2, 0).contiguous()).permute(2, 0, 1)


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
            seen = span.past + rows.stop
            mask = causal_mask(span.past + start, rows.stop - start, _ROWS_TOGETHER)
            mask = mask.repeat_interleave(q.shape[1], 0) if len(mask) > 1 else None
            out[rows] = self._attend(q[rows], latents[:seen], mask)
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


def _expanded(q: Tensor, weight: Tensor, latents: Tensor, span: Span, scale: float, out: Tensor) -> None:
    """Write the rows of `span` in out [N, H, V]; weight [H, K + V, R], latents [tokens, R]."""
    heads, width = weight.shape[:2]
    tokens, key = latents.shape[0], q.shape[2]
    # The kernel takes keys and values of one width, and is fastest when each lie together.
    common = max(key, width - key)
    rows = slice(span.start, span.stop)
    block = max(1, _EXPANDED_BYTES // (2 * common * tokens * q.element_size()))
    for start in range(0, heads, block):
        part = slice(start, min(start + block, heads))
        made = linear(latents, weight[part].flatten(0, 1), None).view(tokens, -1, width)
        queries, keys, values = (
            pad(x.transpose(0, 1), (0, common - x.shape[2])).contiguous().unsqueeze(0)
            for x in (q[rows, part], made[..., :key], made[..., key:])
        )
        target = out[rows, part].transpose(0, 1).unsqueeze(0)
        causal_attention(queries, keys, values, span.past, scale, target, _QUERIES)


def _fake(
    q: Tensor,
    up: Tensor,
    pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    scale: float,
) -> Tensor:
    torch._check(q.dim() == 3 and pages.dim() == 3, lambda: "q is [N, H, K], pages are [P, T, R]")
    torch._check(up.dim() == 2 and up.shape[1] == pages.shape[2], lambda: "up is [H * (K + V), R]")
    heads, width = q.shape[1:]
    made, rest = divmod(up.shape[0], heads)
    torch._check(rest == 0 and made > width, lambda: "up does not hold a key and a value of every head")
    torch._check(q.dtype == up.dtype == pages.dtype, lambda: "q, up and pages differ in type")
    torch._check(selected.dim() == 2 and selected.shape[0] == q.shape[0], lambda: "selected is [N, B]")
    torch._check(pages.shape[1] % group == 0, lambda: "a page holds whole groups")
    torch._check(page_table.shape[0] == context_lens.shape[0], lambda: "page_table is [L, MP]")
    check_lanes(query_start, context_lens)
    return q.new_empty(q.shape[0], heads, made - width)


define(
    "latent_attention(Tensor q, Tensor up, Tensor pages, Tensor selected, Tensor page_table, "
    "Tensor query_start, Tensor context_lens, int group, float scale) -> Tensor",
    cpu=latent_attention,
    fake=_fake,
)

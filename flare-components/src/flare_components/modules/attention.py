"""Grouped-query attention over paged keys and values, with packed input projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from flare_components.serving.batch import Batch, ModelState


@dataclass(frozen=True)
class PagedContext:
    """What an attention layer needs beside its input; handed through a canonical decoder layer in the
    argument that normally carries the cache."""

    batch: Batch
    state: ModelState


class PagedAttention(nn.Module):
    """Causal attention of packed rows [N, hidden] over pages `keys` and `values` of the model state.

    The rows of q, k and v projections are stacked in `qkv_proj`. Rotary embedding and cache writes happen
    here, before attention, so that a row sees itself. Source: Ainslie et al., "GQA" (2023); Kwon et al.,
    "PagedAttention" (2023).
    """

    def __init__(
        self,
        *,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        layer: int,
        bias: bool,
        dtype: torch.dtype,
        keys: str = "key",
        values: str = "value",
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.layer = heads, kv_heads, head_dim, layer
        self.keys, self.values = keys, values
        width = (heads + 2 * kv_heads) * head_dim
        self.qkv_proj = nn.Linear(hidden, width, bias=bias, device="meta", dtype=dtype)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=bias, device="meta", dtype=dtype)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        cache: PagedContext,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """hidden_states [N, hidden]; position_embeddings cos and sin [N, head_dim]."""
        batch, pages = cache.batch, cache.state.pages
        qkv = self.qkv_proj(hidden_states).view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        cos, sin = position_embeddings
        q, k = torch.ops.flare.rotary(q, k, cos, sin)
        key_pages, value_pages = pages[self.keys][self.layer], pages[self.values][self.layer]
        torch.ops.flare.paged_kv_write(k, v, key_pages, value_pages, batch.slot_mapping)
        attended = torch.ops.flare.paged_attention(
            q,
            key_pages,
            value_pages,
            batch.page_table,
            batch.query_start,
            batch.context_lens,
            self.head_dim**-0.5,
        )
        return self.o_proj(attended.view(-1, self.heads * self.head_dim)), None

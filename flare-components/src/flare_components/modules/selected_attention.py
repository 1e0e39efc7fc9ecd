"""Grouped-query attention over the token groups that a small indexer selects."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.group_rotary import RotaryTables
from flare_components.modules.parameters import CENTRED_GAIN, empty_parameter
from flare_components.serving.batch import Batch, ModelState

flare = torch.ops.flare


class SelectedAttention(nn.Module):
    """Causal attention of packed rows [N, hidden] over at most `budget` tokens of complete groups, and the
    tokens of the open group. The output of every head is gated.

    State, layer `layer` of three schemes: `keys` and `values` (paged, [kv_heads, head_dim]) and `selector`
    (grouped by `group`, [index_dim]; open entries are raw keys, of the same shape and type). Rows of
    `qkv_proj` are q and gate of each head in turn, all k, all v; of `index_proj` the index queries, then the
    one index key. Source: Yuan et al., "Native Sparse Attention" (2025), with pooled keys as the index.
    """

    def __init__(
        self,
        *,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        index_heads: int,
        index_dim: int,
        group: int,
        budget: int,
        layer: int,
        eps: float,
        bias: bool,
        dtype: torch.dtype,
        keys: str = "key",
        values: str = "value",
        selector: str = "selector",
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.layer, self.eps = heads, kv_heads, head_dim, layer, eps
        self.index_heads, self.index_dim = index_heads, index_dim
        self.group, self.count = group, budget // group
        self.keys, self.values, self.selector = keys, values, selector
        width = 2 * (heads + kv_heads) * head_dim
        self.qkv_proj = nn.Linear(hidden, width, bias=bias, device="meta", dtype=dtype)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=bias, device="meta", dtype=dtype)
        indexed = (index_heads + 1) * index_dim
        self.index_proj = nn.Linear(hidden, indexed, bias=False, device="meta", dtype=dtype)
        self.q_norm_weight = empty_parameter(head_dim, dtype=dtype)
        self.k_norm_weight = empty_parameter(head_dim, dtype=dtype)
        self.index_q_norm_weight = empty_parameter(index_dim, dtype=dtype)
        self.index_k_norm_weight = empty_parameter(index_dim, dtype=dtype)

    def forward(self, x: Tensor, tables: RotaryTables, batch: Batch, state: ModelState) -> Tensor:
        """x [N, hidden] -> [N, hidden]."""
        queries, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        gated, k, v = self.qkv_proj(x).split([2 * queries, kv, kv], 1)
        q, gate = gated.view(-1, self.heads, 2 * self.head_dim).split([self.head_dim, self.head_dim], 2)
        k, v = k.view(-1, self.kv_heads, self.head_dim), v.view(-1, self.kv_heads, self.head_dim)
        turn = tables.cos, tables.sin, self.eps, CENTRED_GAIN
        q = flare.norm_rotary(q, self.q_norm_weight, *turn)
        k = flare.norm_rotary(k, self.k_norm_weight, *turn)
        key_pages, value_pages = state.pages[self.keys][self.layer], state.pages[self.values][self.layer]
        flare.paged_kv_write(k, v, key_pages, value_pages, batch.slot_mapping)
        selected = self._select(x, tables, batch, state)
        lanes = batch.page_table, batch.query_start, batch.context_lens
        attended = flare.selected_attention(
            q, key_pages, value_pages, selected, *lanes, self.group, self.head_dim**-0.5
        )
        projected: Tensor = self.o_proj((attended * torch.sigmoid(gate)).view(-1, queries))
        return projected

    def _select(self, x: Tensor, tables: RotaryTables, batch: Batch, state: ModelState) -> Tensor:
        pages = state.pages[self.selector][self.layer]
        lanes = batch.page_table, batch.query_start, batch.context_lens
        q, key = self.index_proj(x).split([self.index_heads * self.index_dim, self.index_dim], 1)
        flare.pool_groups(
            key,
            tables.group_cos,
            tables.group_sin,
            self.index_k_norm_weight,
            state.rows[f"{self.selector}.open"][self.layer],
            pages,
            *lanes,
            batch.live_rows,
            self.group,
            self.eps,
            CENTRED_GAIN,
        )
        q = q.view(-1, self.index_heads, self.index_dim)
        q = flare.norm_rotary(q, self.index_q_norm_weight, tables.cos, tables.sin, self.eps, CENTRED_GAIN)
        selected: Tensor = flare.select_groups(q, pages, *lanes, self.group, self.count)
        return selected

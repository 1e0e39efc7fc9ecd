"""A small scorer that selects groups of tokens by keys pooled with learned gates."""

# Source: DeepSeek-AI, "DeepSeek-V3.2" (2025), lightning indexer; here over pooled keys.

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter
from flare_components.serving.batch import Batch, ModelState

flare = torch.ops.flare


class PooledIndexer(nn.Module):
    """Selects at most `budget` tokens of complete groups for every row, by `flare::select_groups`.

    State, layer `layer` of the scheme `selector`: grouped by `group`, [head_dim]; open entries are raw keys
    and gates, [2, head_dim] of the same type. `gate_proj` has the rows that make a token's gate, [head_dim],
    then those that make the weights of the heads, [heads]; `gate_bias` [group, head_dim] is added to the
    gates of the tokens of a group. Keys are layer-normalised (`eps`) before they are pooled.
    """

    def __init__(
        self,
        *,
        hidden: int,
        query_rank: int,
        heads: int,
        head_dim: int,
        group: int,
        budget: int,
        layer: int,
        eps: float,
        dtype: torch.dtype,
        selector: str = "selector",
    ) -> None:
        super().__init__()
        self.heads, self.head_dim, self.layer, self.eps = heads, head_dim, layer, eps
        self.group, self.count, self.selector = group, budget // group, selector
        self.q_proj = nn.Linear(query_rank, heads * head_dim, bias=False, device="meta", dtype=dtype)
        self.k_proj = nn.Linear(hidden, head_dim, bias=False, device="meta", dtype=dtype)
        self.gate_proj = nn.Linear(hidden, head_dim + heads, bias=False, device="meta", dtype=dtype)
        self.k_norm_weight = empty_parameter(head_dim, dtype=dtype)
        self.k_norm_bias = empty_parameter(head_dim, dtype=dtype)
        self.gate_bias = empty_parameter(group, head_dim, dtype=dtype)

    def forward(self, x: Tensor, compressed: Tensor, batch: Batch, state: ModelState) -> Tensor:
        """x [N, hidden], compressed [N, query_rank]: what queries are made of -> i32[N, budget // group]."""
        pages = state.pages[self.selector][self.layer]
        opened = state.rows[f"{self.selector}.open"][self.layer]
        lanes = batch.page_table, batch.query_start, batch.context_lens
        key = nn.functional.layer_norm(
            self.k_proj(x), (self.head_dim,), self.k_norm_weight, self.k_norm_bias, self.eps
        )
        gate, weights = self.gate_proj(x).split([self.head_dim, self.heads], 1)
        flare.pool_gated_groups(key, gate, self.gate_bias, opened, pages, *lanes, batch.live_rows)
        q = self.q_proj(compressed).view(-1, self.heads, self.head_dim)
        selected: Tensor = flare.select_groups(q, pages, *lanes, self.group, self.count, weights)
        return selected

"""Multi-head latent attention: one vector a token is cached for all heads."""

# Source: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1.

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter
from flare_components.modules.pooled_indexer import PooledIndexer
from flare_components.serving.batch import Batch, ModelState

flare = torch.ops.flare


class LatentAttention(nn.Module):
    """Causal attention of packed rows [N, hidden] without positions in keys, over the tokens that `indexer`
    selects and those of the open group.

    State, layer `layer` of the scheme `latents`: paged, [rank]; and that of the indexer. Rows of `qkv_a_proj`
    make what queries are made of, [query_rank], then the latent, [rank]; both are normalised. `key_up`
    [heads, key_dim, rank] and `value_up` [heads, value_dim, rank] make keys and values of a latent; they are
    kept plain, for they are multiplied from either side.
    """

    def __init__(
        self,
        indexer: PooledIndexer,
        *,
        hidden: int,
        heads: int,
        query_rank: int,
        rank: int,
        key_dim: int,
        value_dim: int,
        layer: int,
        eps: float,
        bias: bool,
        dtype: torch.dtype,
        latents: str = "latent",
    ) -> None:
        super().__init__()
        self.heads, self.key_dim, self.value_dim = heads, key_dim, value_dim
        self.query_rank, self.rank = query_rank, rank
        self.layer, self.eps, self.latents = layer, eps, latents
        self.indexer = indexer
        self.qkv_a_proj = nn.Linear(hidden, query_rank + rank, bias=bias, device="meta", dtype=dtype)
        self.q_a_norm_weight = empty_parameter(query_rank, dtype=dtype)
        self.kv_a_norm_weight = empty_parameter(rank, dtype=dtype)
        self.q_b_proj = nn.Linear(query_rank, heads * key_dim, bias=False, device="meta", dtype=dtype)
        self.key_up = empty_parameter(heads, key_dim, rank, dtype=dtype)
        self.value_up = empty_parameter(heads, value_dim, rank, dtype=dtype)
        self.o_proj = nn.Linear(heads * value_dim, hidden, bias=bias, device="meta", dtype=dtype)

    def forward(self, x: Tensor, batch: Batch, state: ModelState) -> Tensor:
        """x [N, hidden] -> [N, hidden]."""
        compressed, latent = self.qkv_a_proj(x).split([self.query_rank, self.rank], 1)
        compressed = flare.rms_norm(compressed, self.q_a_norm_weight, self.eps)
        latent = flare.rms_norm(latent, self.kv_a_norm_weight, self.eps)
        pages = state.pages[self.latents][self.layer]
        flare.paged_write(latent, pages, batch.slot_mapping)
        selected = self.indexer(x, compressed, batch, state)
        attended = flare.latent_attention(
            self.q_b_proj(compressed).view(-1, self.heads, self.key_dim),
            self.key_up,
            self.value_up,
            pages,
            selected,
            batch.page_table,
            batch.query_start,
            batch.context_lens,
            self.indexer.group,
            self.key_dim**-0.5,
        )
        projected: Tensor = self.o_proj(attended.view(-1, self.heads * self.value_dim))
        return projected

"""Attention of image patches over their frame."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from flare_components.modules.norm import RMSNorm


class FrameAttention(nn.Module):
    """Every patch sees all patches of its own frame. Takes what Transformers' vision blocks hand to their
    attention; where those say which patches belong together, here the grid of the image says it.

    norm_eps: queries and keys of every head are normalised before they are rotated (`q_norm`, `k_norm`);
    with None they are not.
    """

    def __init__(
        self, *, hidden: int, heads: int, bias: bool, dtype: torch.dtype, norm_eps: float | None = None
    ) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, hidden // heads
        self.normalised = norm_eps is not None
        if norm_eps is not None:
            self.q_norm = RMSNorm(self.head_dim, norm_eps, dtype)
            self.k_norm = RMSNorm(self.head_dim, norm_eps, dtype)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=bias, device="meta", dtype=dtype)
        self.proj = nn.Linear(hidden, hidden, bias=bias, device="meta", dtype=dtype)

    def forward(
        self,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        **_: Any,
    ) -> Tensor:
        """hidden_states [N, hidden]; cu_seqlens: the grid i32[3]; position_embeddings f32[N, head_dim]."""
        q, k, v = self.qkv(hidden_states).view(-1, 3, self.heads, self.head_dim).unbind(1)
        if self.normalised:
            q, k = self.q_norm(q), self.k_norm(k)
        # Rotation is in FP32, as there.
        q, k = torch.ops.flare.rotary(q.float(), k.float(), *position_embeddings)
        q, k = q.to(v.dtype), k.to(v.dtype)
        attended = torch.ops.flare.frame_attention(q, k, v, cu_seqlens, self.head_dim**-0.5)
        projected: Tensor = self.proj(attended.flatten(1))
        return projected

"""Replacement modules for serving: packed inputs, caller-owned state, fused projections."""

from flare_components.modules.attention import PagedAttention
from flare_components.modules.mlp import PackedGatedMLP
from flare_components.modules.norm import RMSNorm

__all__ = ["PackedGatedMLP", "PagedAttention", "RMSNorm"]

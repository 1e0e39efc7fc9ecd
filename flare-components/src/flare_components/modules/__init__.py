"""Replacement modules for serving: packed inputs, caller-owned state, fused projections, packed weights."""

from flare_components.modules.attention import PagedAttention
from flare_components.modules.balanced_hyper_connection import BalancedHyperConnection, Expansion
from flare_components.modules.channel_delta_net import ChannelDeltaNet
from flare_components.modules.convolution_merger import ConvolutionMerger
from flare_components.modules.expert_mixture import ExpertMixture, RoutedExperts
from flare_components.modules.frame_attention import FrameAttention
from flare_components.modules.gated_delta_net import GatedDeltaNet
from flare_components.modules.gelu import Gelu
from flare_components.modules.group_rotary import GroupRotary, RotaryTables
from flare_components.modules.hyper_connection import HyperConnection, Injection
from flare_components.modules.image_encoder import ImageEncoder
from flare_components.modules.latent_attention import LatentAttention
from flare_components.modules.mlp import PackedGatedMLP
from flare_components.modules.ngram_hash import HashConstants, hash_constants
from flare_components.modules.ngram_injection import NgramInjection
from flare_components.modules.norm import RMSNorm
from flare_components.modules.packed_experts import PackedExperts, experts_for
from flare_components.modules.packed_linear import keep_formats, linear_for
from flare_components.modules.pooled_indexer import PooledIndexer
from flare_components.modules.routers import SigmoidRouter, SoftmaxRouter
from flare_components.modules.selected_attention import SelectedAttention
from flare_components.modules.table_embedding import TableEmbedding

__all__ = [
    "BalancedHyperConnection",
    "ChannelDeltaNet",
    "ConvolutionMerger",
    "Expansion",
    "ExpertMixture",
    "FrameAttention",
    "GatedDeltaNet",
    "Gelu",
    "GroupRotary",
    "HashConstants",
    "HyperConnection",
    "ImageEncoder",
    "Injection",
    "LatentAttention",
    "NgramInjection",
    "PackedExperts",
    "PackedGatedMLP",
    "PagedAttention",
    "PooledIndexer",
    "RMSNorm",
    "RotaryTables",
    "RoutedExperts",
    "SelectedAttention",
    "SigmoidRouter",
    "SoftmaxRouter",
    "TableEmbedding",
    "experts_for",
    "hash_constants",
    "keep_formats",
    "linear_for",
]

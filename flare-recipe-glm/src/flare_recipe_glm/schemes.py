"""The state of a sequence, page by page and in its row. There are no positions: keys have none."""

from __future__ import annotations

from flare.contract import (
    CacheScheme,
    ConvHistoryScheme,
    CounterScheme,
    DType,
    GroupedScheme,
    PagedScheme,
    RecurrentScheme,
    SavedHiddenScheme,
)
from flare_recipe_glm.config import ModelConfig

CONSUMED = "consumed"
"""The counter of tokens that a row has taken."""


class GlmSchemes:
    """The cache schemes part of the recipe. Storage order is what steps read together."""

    def schemes(self, config: ModelConfig, dtype: DType) -> tuple[CacheScheme, ...]:
        """Cache schemes in storage order; recurrent state is FP32 in every precision."""
        text = config.text
        linear, indexed = config.count("linear_attention"), config.count("indexed_attention")
        width = text.linear_head_dim
        return (
            PagedScheme(name="latent", layers=indexed, dtype=dtype, shape=(text.kv_lora_rank,)),
            GroupedScheme(
                name="selector",
                layers=indexed,
                dtype=dtype,
                shape=(text.index_head_dim,),
                group=text.index_kpool,
                open_shape=(2, text.index_head_dim),  # key and gate
                open_dtype=dtype,
            ),
            RecurrentScheme(
                name="memory", layers=linear, dtype=DType.F32, shape=(text.linear_num_heads, width, width)
            ),
            ConvHistoryScheme(
                name="conv",
                layers=linear,
                dtype=dtype,
                channels=3 * text.linear_num_heads * width,
                taps=text.linear_conv_kernel_dim - 1,
            ),
            CounterScheme(name=CONSUMED, dtype=DType.I32),
            SavedHiddenScheme(name="hidden", dtype=dtype, shape=(text.hidden_size,)),
        )

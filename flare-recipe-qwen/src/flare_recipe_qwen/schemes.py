"""The state of a sequence, page by page and in its row.

`tokens` are for programs that compute rows of n-gram tables themselves; others leave them zero.
"""

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
    TokenHistoryScheme,
)
from flare_recipe_qwen.config import ModelConfig

RING_OVERLAP = 3
"""Raw selector keys that are kept beside those of the open group."""
AXES = 3
"""Of positions: time, row and column of an image."""


class QwenSchemes:
    """The cache schemes part of the recipe. Storage order is what steps read together."""

    def schemes(self, config: ModelConfig, dtype: DType) -> tuple[CacheScheme, ...]:
        """Cache schemes in storage order; recurrent state is FP32 in every precision."""
        text, linear = config.text, config.linear_layers
        indexed = text.num_hidden_layers - linear
        key, value = text.linear_key_head_dim, text.linear_value_head_dim
        channels = 2 * text.linear_num_key_heads * key + text.linear_num_value_heads * value
        entry = (text.num_key_value_heads, text.head_dim)
        group, selector = text.indexer_compress_ratio, (text.indexer_head_dim,)
        matrix = (text.linear_num_value_heads, key, value)
        attention = (
            PagedScheme(name="key", layers=indexed, dtype=dtype, shape=entry),
            PagedScheme(name="value", layers=indexed, dtype=dtype, shape=entry),
            GroupedScheme(
                name="selector",
                layers=indexed,
                dtype=dtype,
                shape=selector,
                group=group,
                overlap=RING_OVERLAP,
                open_shape=selector,
                open_dtype=dtype,
            ),
            CounterScheme(name="group_position", count=AXES),
        )
        recurrence = (
            RecurrentScheme(name="memory", layers=linear, dtype=DType.F32, shape=matrix),
            ConvHistoryScheme(
                name="conv",
                layers=linear,
                dtype=dtype,
                channels=channels,
                taps=text.linear_conv_kernel_dim - 1,
            ),
        )
        hidden = SavedHiddenScheme(name="hidden", dtype=dtype, shape=(text.hidden_size,))
        return (*attention, *recurrence, *_ngram_schemes(config, dtype), hidden)


def verification_schemes(config: ModelConfig) -> tuple[CacheScheme, ...]:
    """What programs that verify drafts would keep besides `QwenSchemes.schemes`; no program does yet, so no
    core has it: `selector_tag`, the token that a raw selector key is of, where lengths do not say it because
    drafts were rejected, and `position`, the next on every axis, where the host does not give it."""
    text = config.text
    indexed = text.num_hidden_layers - config.linear_layers
    ring = text.indexer_compress_ratio + RING_OVERLAP
    return (
        CounterScheme(name="selector_tag", layers=indexed, count=ring, dtype=DType.I32),
        CounterScheme(name="position", count=AXES),
    )


def _ngram_schemes(config: ModelConfig, dtype: DType) -> tuple[CacheScheme, ...]:
    text = config.text
    if not text.ple_layer_ids:
        return ()
    return (
        ConvHistoryScheme(
            name="ngram_conv",
            layers=len(text.ple_layer_ids),
            dtype=dtype,
            channels=text.hc_count * text.hidden_size,
            taps=(text.ple_conv_kernel_size - 1) * text.ngram_size,
        ),
        TokenHistoryScheme(name="tokens", length=text.ngram_size - 1),
    )

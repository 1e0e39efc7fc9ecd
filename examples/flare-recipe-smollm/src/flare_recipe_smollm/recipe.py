"""The SmolLM2 recipe: every part in one place."""

from __future__ import annotations

from typing import Any

from flare.contract import DefaultSampling, DType, PagedScheme, Range, SamplingRanges, SavedHiddenScheme
from flare.contract.schemes import CacheScheme
from flare.recipes import Recipe
from flare_components.serving import compose
from flare_recipe_smollm.frontend import SmolLMFrontend
from flare_recipe_smollm.loader import LlamaLoader
from flare_recipe_smollm.model import LlamaReplacements, head_dim
from flare_recipe_smollm.oracle import LlamaOracle


class LlamaSchemes:
    """Keys and values of every layer in pages, the final hidden vector in the row."""

    def schemes(self, config: Any, dtype: DType) -> tuple[CacheScheme, ...]:
        """Cache schemes in storage order."""
        entry = (config.num_key_value_heads, head_dim(config))
        layers = config.num_hidden_layers
        return (
            PagedScheme(name="key", layers=layers, dtype=dtype, shape=entry),
            PagedScheme(name="value", layers=layers, dtype=dtype, shape=entry),
            SavedHiddenScheme(name="hidden", dtype=dtype, shape=(config.hidden_size,)),
        )


class TextPrograms:
    """The programs of a decoder-only text model."""

    compose = staticmethod(compose)


SAMPLING = DefaultSampling(
    temperature=0.2,
    top_k=0,
    top_p=0.9,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    ranges=SamplingRanges(
        temperature=Range(low=0.01, high=2.0),
        top_k=Range(low=0, high=49152),
        top_p=Range(low=0.01, high=1.0),
        min_p=Range(low=0.0, high=1.0),
        repetition_penalty=Range(low=0.5, high=2.0),
        presence_penalty=Range(low=-2.0, high=2.0),
        frequency_penalty=Range(low=-2.0, high=2.0),
    ),
    source="model card of HuggingFaceTB/SmolLM2-135M-Instruct, transformers example",
    date="2026-11-30",
)

RECIPE = Recipe(
    loader=LlamaLoader(),
    replacements=LlamaReplacements(),
    cache_schemes=LlamaSchemes(),
    programs=TextPrograms(),
    sampling=SAMPLING,
    frontend=SmolLMFrontend(),
    oracle=LlamaOracle(),
)
"""The object that the descriptor's import string names."""

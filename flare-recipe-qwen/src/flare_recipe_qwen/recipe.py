"""The Qwen recipe: every part in one place."""

from __future__ import annotations

from typing import cast

from torch import nn

from flare.contract import BufferView, DefaultSampling, Range, SamplingRanges
from flare.prepare import BufferLayout, ProgramSet, ServingPlan
from flare.recipes import Recipe
from flare_components.serving import compose
from flare_recipe_qwen.decoder import ServedQwen
from flare_recipe_qwen.frontend import QwenFrontend
from flare_recipe_qwen.loader import QwenLoader
from flare_recipe_qwen.model import QwenReplacements
from flare_recipe_qwen.oracle import QwenOracle
from flare_recipe_qwen.schemes import QwenSchemes


class TextPrograms:
    """The programs of the model, which find the rows of its n-gram tables in their batches."""

    def compose(
        self, plan: ServingPlan, model: nn.Module, layout: BufferLayout, weights: dict[str, BufferView]
    ) -> ProgramSet:
        """See `flare_components.serving.compose`."""
        return compose(plan, model, layout, weights, cast(ServedQwen, model).tables)


# Without thinking the card recommends temperature 0.7, top_p 0.8, top_k 20 and presence_penalty 1.5: requests
# ask for these, and the ranges admit them.
SAMPLING = DefaultSampling(
    temperature=1.0,
    top_k=20,
    top_p=0.95,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    ranges=SamplingRanges(
        temperature=Range(low=0.01, high=2.0),
        top_k=Range(low=0, high=248320),
        top_p=Range(low=0.01, high=1.0),
        min_p=Range(low=0.0, high=1.0),
        repetition_penalty=Range(low=0.5, high=2.0),
        presence_penalty=Range(low=-2.0, high=2.0),
        frequency_penalty=Range(low=-2.0, high=2.0),
    ),
    source="model card of Qwen/Qwen3.8-Flash-Next, best practices: thinking mode",
    date="2026-11-30",
)

RECIPE = Recipe(
    loader=QwenLoader(),
    replacements=QwenReplacements(),
    cache_schemes=QwenSchemes(),
    programs=TextPrograms(),
    sampling=SAMPLING,
    frontend=QwenFrontend(),
    oracle=QwenOracle(),
)
"""The object that the descriptor's import string names."""

"""The GLM recipe: every part in one place."""

from __future__ import annotations

from torch import nn

from flare.contract import BufferView, DefaultSampling, Range, SamplingRanges
from flare.prepare import BufferLayout, ProgramSet, ServingPlan
from flare.recipes import Recipe
from flare_components.serving import compose
from flare_recipe_glm.frontend import GlmFrontend
from flare_recipe_glm.loader import GlmLoader
from flare_recipe_glm.model import GlmReplacements
from flare_recipe_glm.oracle import GlmOracle
from flare_recipe_glm.schemes import GlmSchemes


class Programs:
    """The programs of the model."""

    def compose(
        self, plan: ServingPlan, model: nn.Module, layout: BufferLayout, weights: dict[str, BufferView]
    ) -> ProgramSet:
        """See `flare_components.serving.compose`."""
        return compose(plan, model, layout, weights)


SAMPLING = DefaultSampling(
    temperature=1.0,
    top_k=0,
    top_p=0.95,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    ranges=SamplingRanges(
        temperature=Range(low=0.01, high=2.0),
        top_k=Range(low=0, high=154880),
        top_p=Range(low=0.01, high=1.0),
        min_p=Range(low=0.0, high=1.0),
        repetition_penalty=Range(low=0.5, high=2.0),
        presence_penalty=Range(low=-2.0, high=2.0),
        frequency_penalty=Range(low=-2.0, high=2.0),
    ),
    source="generation_config.json of zai-org/GLM-5.3-Flash; filters that it does not name are off",
    date="2026-11-30",
)

RECIPE = Recipe(
    loader=GlmLoader(),
    replacements=GlmReplacements(),
    cache_schemes=GlmSchemes(),
    programs=Programs(),
    sampling=SAMPLING,
    frontend=GlmFrontend(),
    oracle=GlmOracle(),
    page_tokens=256,
)
"""The object that the descriptor's import string names."""

"""Retained upstream modules take part in every program that runs the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from prepared_cores import tiny_request
from torch import nn

from flare.contract import DType
from flare.prepare import BufferLayout, ProgramDefinition
from flare.prepare.plan import plan_serving
from flare.prepare.trace import trace
from flare.prepare.weights import place_weights, weight_bytes
from flare.recipes import BuiltModel
from flare.testing.retained import check_retained
from flare_recipe_smollm.recipe import RECIPE

LAYERS = 2


@pytest.fixture
def built(tiny_checkpoint: Path) -> BuiltModel:
    config = RECIPE.loader.config(RECIPE.loader.open(tiny_checkpoint))
    return RECIPE.replacements.build(config, DType.F32)


@pytest.fixture
def programs(built: BuiltModel, tiny_checkpoint: Path) -> dict[str, ProgramDefinition]:
    config = RECIPE.loader.config(RECIPE.loader.open(tiny_checkpoint))
    plan = plan_serving(
        tiny_request().capacities,
        schemes=RECIPE.cache_schemes.schemes(config, DType.F32),
        dtype=DType.F32,
        vocab_size=config.vocab_size,
        model_context=built.context,
        weight_bytes=weight_bytes(built),
        weight_copies=2.0,
        prefill_chunk=512,
    )
    layout = BufferLayout()
    weights = place_weights(built, layout)
    composed = RECIPE.programs.compose(plan, built.module, layout, weights)
    return {program.name: program for program in composed.programs}


@pytest.mark.parametrize("name", ["prefill.16", "decode.4"])
def test_every_retained_module_runs_while_tracing(
    built: BuiltModel, programs: dict[str, ProgramDefinition], name: str
) -> None:
    calls = check_retained(built, lambda: trace(programs[name]))
    assert calls == {
        "LlamaDecoderLayer": LAYERS,
        "LlamaRotaryEmbedding": 1,
        "Embedding": 1,
        "Linear": LAYERS * 4 + 1,
    }


def test_resume_runs_the_head_only(built: BuiltModel, programs: dict[str, ProgramDefinition]) -> None:
    with pytest.raises(AssertionError, match=r"model\.embed_tokens \(Embedding\) was never called"):
        check_retained(built, lambda: trace(programs["resume"]))


def call_around_the_module(model: nn.Module) -> None:
    head = model.get_submodule("lm_head")
    model.logits = lambda hidden: nn.functional.linear(hidden, head.weight)  # type: ignore[assignment, arg-type]


def patch_the_forward(model: nn.Module) -> None:
    rotary = model.get_submodule("model.rotary_emb")
    rotary.forward = rotary.forward  # type: ignore[method-assign]


def subclass(model: nn.Module) -> None:
    class Faster(nn.Embedding):
        pass

    model.get_submodule("model.embed_tokens").__class__ = Faster


@pytest.mark.parametrize(
    ("bypass", "message"),
    [
        (call_around_the_module, r"lm_head \(Linear\) was never called"),
        (patch_the_forward, r"model\.rotary_emb runs another forward than LlamaRotaryEmbedding's"),
        (subclass, "Embedding has no instance"),
    ],
)
def test_a_bypassed_module_is_found(
    built: BuiltModel,
    programs: dict[str, ProgramDefinition],
    bypass: Callable[[nn.Module], None],
    message: str,
) -> None:
    bypass(built.module)
    with pytest.raises(AssertionError, match=message):
        check_retained(built, lambda: trace(programs["prefill.16"]))


def test_a_module_that_is_skipped_is_found() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.first(x)
            return y

    model = Two()
    built = BuiltModel(module=model, context=1, retained=(nn.Linear,))
    with pytest.raises(AssertionError, match=r"bypassed: second \(Linear\) was never called$"):
        check_retained(built, lambda: model(torch.ones(2)))
    check_retained(built, lambda: model.second(model(torch.ones(2))))
    assert not model.first._forward_pre_hooks

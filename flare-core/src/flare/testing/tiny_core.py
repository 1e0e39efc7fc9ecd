"""From a tiny checkpoint to tokens: the whole way that a recipe's model takes, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from flare.contract import DType, ProgramKind, ValueSource
from flare.device import LoadOptions
from flare.device.direct import DirectRunner
from flare.engine.loading import load_core
from flare.prepare import CapacityRequest, Progress
from flare.prepare.session import PreparationRequest, PreparationSession
from flare.testing.failure import blaming, require
from flare.testing.teacher_forcing import precision_bound

if TYPE_CHECKING:
    from flare.device.base import Device
    from flare.recipes import Recipe

TINY_CAPACITIES = CapacityRequest(
    context=256, concurrency=4, prefill_chunk_size=64, page_tokens=16, snapshot_rows=2
)
"""Small, with more than one page, chunk size and lane."""

_TEMPERATURE = 0.01
_TOKENS = 24
# A penalty would make another token than the reference's the likeliest.
_NEUTRAL = {
    ValueSource.REPETITION_PENALTY: [1.0],
    ValueSource.PRESENCE_PENALTY: [0.0],
    ValueSource.FREQUENCY_PENALTY: [0.0],
}


def round_trip(
    recipe: Recipe,
    checkpoint: Path,
    destination: Path,
    *,
    dtype: DType = DType.F32,
    capacities: CapacityRequest = TINY_CAPACITIES,
) -> Path:
    """Prepare `checkpoint` into the core `destination`, load it and generate; returns `destination`.

    The prompt is `recipe.oracle.prompt()`. Tokens are drawn at a temperature near zero, and each must be one
    that Transformers' model finds (almost) likeliest after the same text: a gap of `g` between two logits
    lets the other be drawn with probability exp(-g / temperature).

    Raises AssertionError naming preparation, the core or the token at fault.
    """
    opened = recipe.loader.open(checkpoint)
    with blaming("preparation"):
        request = PreparationRequest(
            model="tiny",
            recipe_name="tiny",
            recipe_version="0",
            checkpoint_uri=str(checkpoint),
            dtype=dtype,
            capacities=capacities,
        )
        PreparationSession(recipe, request, Progress()).prepare(opened, destination)
    with blaming("core"):
        device = load_core(str(destination), LoadOptions())
    try:
        frontend = recipe.frontend.assets(opened, recipe.loader.config(opened), recipe.sampling)
        tokenizer = frontend.assets[frontend.frontend.tokenizer_asset]
        with blaming("generation"):
            prompt = _encode(tokenizer, recipe.oracle.prompt())[
                : device.contract.capacities.context - _TOKENS
            ]
            drawn = _generate(device, prompt)
    finally:
        device.close()
    reference = recipe.oracle.reference(opened, dtype)
    _check_drawn(reference, dtype, prompt, drawn, frontend.frontend.eos_token_ids)
    return destination


def _encode(tokenizer: bytes, text: str) -> list[int]:
    from flare.frontend.tokenizer import Tokenizer

    return Tokenizer(tokenizer).encode(text)


def _generate(device: Device, prompt: list[int]) -> list[int]:
    runner = DirectRunner(device)
    request = runner.start(0, prompt, max_tokens=_TOKENS, temperature=_TEMPERATURE, extra=_NEUTRAL)
    runner.prefill_all(request, prompt)
    smallest = device.contract.of_kind(ProgramKind.DECODE)[0]
    idle = [None] * (smallest.lanes - 1)
    while len(request.tokens) < _TOKENS and runner.decode([request, *idle], smallest.name)[0]:
        pass
    return request.tokens


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _check_drawn(
    reference: nn.Module, dtype: DType, prompt: list[int], drawn: list[int], ends: tuple[int, ...]
) -> None:
    require(bool(drawn), "generation", "no token was drawn")
    require(
        len(drawn) == _TOKENS or drawn[-1] in ends,
        "generation",
        f"stopped after {len(drawn)} tokens without an end token",
    )
    logits = reference(torch.tensor([[*prompt, *drawn]])).logits[0, len(prompt) - 1 : -1].float()
    # exp(-30) for the draw; the rest is rounding.
    allowed = 30 * _TEMPERATURE + precision_bound(logits, dtype)
    for index, token in enumerate(drawn):
        gap = float(logits[index].max() - logits[index, token])
        require(
            gap <= allowed,
            "generation",
            f"token {index} is {token}; the reference prefers {int(logits[index].argmax())} "
            f"by {gap:.3g}, allowed is {allowed:.3g}",
        )

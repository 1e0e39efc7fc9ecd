"""Costs of programs follow what is measured, at the start of a prompt and deep in it."""

from __future__ import annotations

import pytest
from test_cover import programs

from flare.scheduler.costs import ProgramCosts
from flare.scheduler.cover import PrefillCover

PREPARED = {16: 2000.0, 256: 3000.0, 1024: 11_000.0}
SLOPES = {16: 0.03, 256: 0.2, 1024: 0.7}  # microseconds a token before the chunk
LONG = 60_000


def measured(tokens: int, depth: int, slower: float = 1.0) -> float:
    return slower * PREPARED[tokens] + SLOPES[tokens] * depth


def long_prompt(costs: ProgramCosts, tokens: int, slower: float = 1.0) -> None:
    for depth in range(0, LONG, tokens):
        costs.observe(f"prefill_{tokens}", measured(tokens, depth, slower), depth)


@pytest.mark.parametrize("slower", [1.0, 1.4])
@pytest.mark.parametrize("tokens", [256, 1024])
def test_depth_is_told_from_the_program(tokens: int, slower: float) -> None:
    costs = ProgramCosts(programs(PREPARED))
    name = f"prefill_{tokens}"
    for _ in range(2):
        long_prompt(costs, tokens, slower)
    for depth in (0, 4096, LONG):
        assert costs.of(name, depth) == pytest.approx(measured(tokens, depth, slower), rel=0.1)


def test_a_long_prompt_does_not_shorten_the_chunks_of_the_next_one() -> None:
    made = programs(PREPARED)
    costs = ProgramCosts(made)
    cover = PrefillCover(made, costs)
    limit_us = 22_000.0
    chunks = []
    depth = 0
    while depth < LONG:
        program = cover.next(LONG - depth, limit_us, depth)
        took = measured(program.tokens, depth)
        chunks.append((program.tokens, took))
        costs.observe(program.name, took, depth)
        depth += program.tokens
    sizes = [tokens for tokens, _ in chunks]
    assert sizes[0] == 1024
    assert sizes[-1] < 1024
    assert max(took for _, took in chunks) < 1.1 * limit_us
    assert cover.next(4096, limit_us, 0).tokens == 1024


def test_what_never_ran_deep_is_expected_to_slow_down_as_its_neighbour_does() -> None:
    costs = ProgramCosts(programs(PREPARED))
    assert costs.of("prefill_1024", LONG) == PREPARED[1024]
    long_prompt(costs, 256)
    guess = costs.of("prefill_1024", LONG) - costs.of("prefill_1024")
    assert guess == pytest.approx(4 * SLOPES[256] * LONG, rel=0.1)


def test_steps_that_are_shorter_behind_more_tokens_are_noise() -> None:
    costs = ProgramCosts(programs(PREPARED))
    for depth in range(0, LONG, 256):
        costs.observe("prefill_256", 3000.0 - depth / 100, depth)
    assert 0 < costs.of("prefill_256", LONG) <= costs.of("prefill_256") * 1.01


def test_the_first_measurement_of_an_unknown_program_is_its_cost() -> None:
    costs = ProgramCosts(programs({16: None, 64: None}))
    costs.observe("prefill_64", 900.0, 5000)
    assert costs.of("prefill_64", 5000) == pytest.approx(900.0)

from __future__ import annotations

import pytest

from flare.errors import RequestError
from flare.frontend import choice_seed, resolve_logit_bias


def test_choices_of_a_seed_are_reproducible_and_distinct() -> None:
    seeds = [choice_seed(7, choice) for choice in range(100)]

    assert seeds == [choice_seed(7, choice) for choice in range(100)]
    assert len(set(seeds)) == 100
    assert seeds[0] == 7
    # Written down: changing the derivation changes what users get for a seed.
    assert seeds[1] == 14818979533484651488
    assert not set(seeds) & {choice_seed(8, choice) for choice in range(100)}


def test_without_a_seed_every_choice_draws_its_own() -> None:
    assert len({choice_seed(None, 0) for _ in range(100)}) == 100


@pytest.mark.parametrize(("seed", "key"), [(-1, 2**64 - 1), (-(2**63), 2**63), (2**64 - 1, 2**64 - 1)])
def test_seeds_are_64_bits(seed: int, key: int) -> None:
    assert choice_seed(seed, 0) == key


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_larger_seeds_are_refused(seed: int) -> None:
    with pytest.raises(RequestError):
        choice_seed(seed, 0)


def test_bias_pairs_are_sorted() -> None:
    assert resolve_logit_bias({"9": -100, "3": 1.5}, 10) == ((3, 1.5), (9, -100.0))


@pytest.mark.parametrize(
    "bias",
    [
        {"10": 1},
        {"-1": 1},
        {"x": 1},
        {"": 1},
        {"1.0": 1},
        {"²": 1},
        {"9" * 5000: 1},
        {"1": 100.5},
        {"1": float("nan")},
        {"1": float("inf")},
        {"1": 1, "01": 2},
        {str(token): 1 for token in range(301)},
    ],
)
def test_impossible_biases_are_refused(bias: dict[str, float]) -> None:
    with pytest.raises(RequestError) as caught:
        resolve_logit_bias(bias, 10 if len(bias) < 300 else 1000)
    assert caught.value.field == "logit_bias"

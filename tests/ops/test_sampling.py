"""`flare::sample`: the distribution it draws from, and that nothing but the request decides a draw."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from slot_state import commit, i32, make_state, sample, snapshot

from flare_components.ops.request_state import INVALID_TOKEN, NO_TOKEN
from flare_components.ops.sampling import invert, widen


def exact_probabilities(logits, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """The distribution as the filters define it; see test_sampling_filters for their ties."""
    p = np.exp((logits - logits.max()) / temperature)
    p[p < min_p * p.max()] = 0
    if top_k:
        p[p < np.sort(p)[-top_k]] = 0
    p /= p.sum()
    if top_p < 1:
        above = np.array([p[p > value].sum() for value in p])
        p[above >= top_p] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 2.5},
        {"top_k": 7},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"temperature": 1.3, "top_k": 20, "top_p": 0.95},
        {"temperature": 1.3, "top_k": 12, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)
@pytest.mark.parametrize("along", ["counter", "seed"])
def test_draws_follow_the_exact_distribution(parameters, along):
    vocab, slots, rounds = 60, 50, 60
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(3)) * 1.5
    p = exact_probabilities(logits.double().numpy(), **parameters)
    state = make_state(slots, vocab, **parameters)
    lanes = i32(*range(slots))
    state["seed"][:] = torch.arange(slots)
    drawn = np.zeros(vocab, int)
    for n in range(rounds):
        tokens = sample(logits.expand(slots, vocab), lanes, state)[0]
        drawn += np.bincount(tokens.numpy(), minlength=vocab)
        state["counter" if along == "counter" else "seed"] += 1 if along == "counter" else slots * (n + 1)
    assert drawn[p == 0].sum() == 0, "a filtered token was drawn"
    expected = p * slots * rounds
    large = expected >= 5
    observed = [*drawn[large], drawn[~large].sum()]
    wanted = [*expected[large], expected[~large].sum()]
    if wanted[-1] < 1e-9:
        observed, wanted = observed[:-1], wanted[:-1]
    assert stats.chisquare(observed, wanted).pvalue > 1e-3


def random_requests(count, vocab):
    """One state with a different request in every slot, and their logits."""
    generator = torch.Generator().manual_seed(11)
    state = make_state(count, vocab)
    for name, values in {
        "temperature": [0.2, 1.0, 0.7, 1.5],
        "top_p": [0.9, 0.95, 1.0, 1.0],
        "top_k": [0, 20, 0, 300],
        "min_p": [0, 0, 0.02, 0],
        "repetition_penalty": [1.0, 1.1, 1.3, 1.0],
        "presence_penalty": [0, 0.5, 0, -0.2],
        "logprobs_wanted": [-1, 5, 0, 20],
    }.items():
        state[name][:] = torch.tensor(values * (count // 4))
    state["seed"][:] = torch.randint(-(2**62), 2**62, (count,), generator=generator)
    state["counter"][:] = torch.randint(0, 2**40, (count,), generator=generator)
    for name in ("prompt_counts", "output_counts"):
        state[name][:] = torch.rand((count, vocab), generator=generator) < 0.01
    logits = (torch.randn((count, vocab), generator=generator) * 4).bfloat16()
    return state, logits


@pytest.mark.parametrize("capacity", [2, 4, 8])
def test_a_draw_is_the_same_in_any_lane_slot_batch_and_capacity(capacity):
    vocab, requests = 49152, 8  # long enough for rows to be split among threads
    state, logits = random_requests(requests, vocab)
    alone = [sample(logits[r : r + 1], i32(r), state) for r in range(requests)]
    for shift in range(capacity):
        # Request r sits in another slot each time, and in lane (r + shift) % capacity; some lanes idle.
        places = torch.roll(torch.arange(requests), shift)
        moved = {name: tensor[places] for name, tensor in state.items()}
        slot_of = {int(r): slot for slot, r in enumerate(places)}
        lanes = [(lane - shift) % capacity for lane in range(capacity)]
        idle = {lane for lane in range(capacity) if shift % 2 and lane == (shift * 3) % capacity}
        slots = i32(*(-1 if lane in idle else slot_of[r] for lane, r in enumerate(lanes)))
        together = sample(logits[lanes], slots, moved)
        for lane, r in enumerate(lanes):
            for one, many in zip(alone[r], together, strict=True):
                if lane not in idle:
                    assert one[0].numpy().tobytes() == many[lane].numpy().tobytes(), (shift, lane, r)
            if lane in idle:
                assert together[0][lane] == NO_TOKEN


def test_seed_and_counter_decide_the_draw():
    logits = torch.zeros(1, 4096)
    state = make_state(1, 4096)
    draws = {}
    for seed in (0, 1, -1):
        for counter in (0, 1, 2**32):
            state["seed"][0], state["counter"][0] = seed, counter
            draws[seed, counter] = int(sample(logits, i32(0), state)[0])
            assert draws[seed, counter] == int(sample(logits, i32(0), state)[0])
    assert len(set(draws.values())) == 9


def test_sampling_and_committing_leave_idle_lanes_and_slots_alone():
    vocab = 50
    state = make_state(4, vocab)
    state["finished"][2] = 1
    before = snapshot(state)
    logits = torch.randn(4, vocab)
    logits[3, 5] = math.nan
    slots = i32(-1, 2, -1, 0)
    tokens = sample(logits, slots, state)[0]
    assert tokens.tolist() == [NO_TOKEN, NO_TOKEN, NO_TOKEN, INVALID_TOKEN]
    commit(tokens, slots, state)
    assert snapshot(state) == before


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_that_is_not_finite_draws_nothing(poison, dtype):
    vocab = 300
    logits = torch.randn(3, vocab).to(dtype)
    logits[1, 299] = poison
    # The grammar forbids the poisoned token: the row is still broken.
    mask = torch.full((3, 10), -1, dtype=torch.int32)
    mask[:, 9] = 1
    state = make_state(3, vocab, logprobs_wanted=3)
    for grammar in (None, mask):
        tokens, logprobs, top_ids, _ = sample(logits, i32(0, 1, 2), state, grammar)
        assert tokens[1] == INVALID_TOKEN
        assert tokens[0] >= 0
        assert tokens[2] >= 0
        assert logprobs[1] == 0
        assert (top_ids[1] == -1).all()


def test_forbidden_tokens_are_never_drawn_and_no_token_at_all_is_invalid():
    logits = torch.full((1, 40), -math.inf)
    logits[0, 17] = -3.0
    state = make_state(1, 40, top_k=5, top_p=0.9)
    for counter in range(20):
        state["counter"][0] = counter
        assert int(sample(logits, i32(0), state)[0]) == 17
    assert int(sample(torch.full((1, 40), -math.inf), i32(0), state)[0]) == INVALID_TOKEN


def test_inversion_skips_weightless_entries_at_both_ends():
    weights = np.array([0.0, 1.0, 0.0, 2.0, 0.0])
    assert invert(weights, 2.0**-53) == 1
    assert invert(weights, 1 / 3 - 1e-9) == 1
    assert invert(weights, 1 / 3 + 1e-9) == 3
    assert invert(weights, 1 - 2.0**-53) == 3


def test_widening_is_exact_for_every_bfloat16():
    row = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    assert np.array_equal(widen(row), row.float().numpy(), equal_nan=True)
    assert np.array_equal(widen(row[::3]), row[::3].float().numpy(), equal_nan=True)
    assert widen(torch.ones(3, 2).half()[:, 1]).tolist() == [1, 1, 1]


def test_a_tiny_temperature_draws_the_most_likely_tokens():
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.9990234375]])
    state = make_state(1, 4, temperature=1e-30)
    drawn = set()
    for counter in range(60):
        state["counter"][0] = counter
        drawn.add(int(sample(logits, i32(0), state)[0]))
    assert drawn == {1, 2}

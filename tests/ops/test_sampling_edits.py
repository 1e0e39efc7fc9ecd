"""Grammar mask, logit bias and minimum length inside `flare::sample`."""

import math

import numpy as np
import torch
from slot_state import i32, make_state, sample

from flare_components.ops.request_state import INVALID_TOKEN

VOCAB = 70


def draws(logits, state, mask=None, count=200):
    found = set()
    for counter in range(count):
        state["counter"][0] = counter
        found.add(int(sample(logits, i32(0), state, mask)[0]))
    return found


def grammar(*tokens):
    bits = np.zeros(96, np.uint8)
    bits[list(tokens)] = 1
    return torch.from_numpy(np.packbits(bits, bitorder="little").view(np.int32).copy())[None]


def test_grammar_mask_admits_its_tokens_only():
    admitted = {0, 31, 32, 63, 69}
    assert draws(torch.zeros(1, VOCAB), make_state(1, VOCAB), grammar(*admitted)) == admitted


def test_bias_moves_single_tokens_and_padding_moves_none():
    state = make_state(1, VOCAB)
    state["bias_ids"][0] = i32(9, 4, -1, -1)
    state["bias_values"][0] = torch.tensor([100.0, 99.0, 500.0, 500.0])
    logits = torch.zeros(1, VOCAB)
    assert draws(logits, state) == {9, 4}
    assert not logits.any(), "the logits of the caller are never edited"
    state["bias_values"][0] = torch.tensor([-100.0, -100.0, 0, 0])
    assert draws(logits, state, count=1500) == set(range(VOCAB)) - {9, 4}


def test_bias_of_one_token_is_its_odds():
    state = make_state(1, 2)
    state["bias_ids"][0] = i32(1, -1, -1, -1)
    state["bias_values"][0, 0] = math.log(3)
    ones = 0
    for counter in range(4000):
        state["counter"][0] = counter
        ones += int(sample(torch.zeros(1, 2), i32(0), state)[0])
    assert abs(ones / 4000 - 0.75) < 0.025


def test_no_stop_token_before_the_minimum_length():
    state = make_state(1, VOCAB, min_tokens=3)
    state["stop_ids"][0] = i32(5, 69, -1)
    logits = torch.zeros(1, VOCAB)
    logits[0, 5], logits[0, 69], logits[0, 8] = 60.0, 60.0, 30.0
    # Bias cannot bring back what is forbidden.
    state["bias_ids"][0, 0], state["bias_values"][0, 0] = 5, 100.0
    for generated in range(3):
        state["generated"][0] = generated
        assert draws(logits, state, count=30) == {8}
    state["generated"][0] = 3
    assert draws(logits, state, count=30) == {5}


def test_a_grammar_that_admits_only_forbidden_tokens_is_reported():
    state = make_state(1, VOCAB, min_tokens=1)
    state["stop_ids"][0, 0] = 5
    assert draws(torch.zeros(1, VOCAB), state, grammar(5), count=3) == {INVALID_TOKEN}

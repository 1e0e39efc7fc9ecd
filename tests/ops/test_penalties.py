"""Penalties against their formulas, from counts that see every token exactly once."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slot_state import commit, i32, make_state, sample, start

from flare_components.ops.penalties import apply_penalties


def penalised(logits, prompt, output, repetition, presence, frequency):
    """The formulas, token by token, from token lists."""
    result = []
    for token, value in enumerate(logits):
        x = float(value)
        if token in prompt or token in output:
            x = x / repetition if x > 0 else x * repetition
        x -= output.count(token) * frequency
        if token in output:
            x -= presence
        result.append(x)
    return result


TOKENS = st.lists(st.integers(0, 11), max_size=30)


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(st.floats(-30, 30, width=32), min_size=12, max_size=12),
    prompt=TOKENS,
    output=TOKENS,
    repetition=st.sampled_from([1.0, 1.1, 2.0, 0.5]),
    presence=st.sampled_from([0.0, 0.5, -2.0]),
    frequency=st.sampled_from([0.0, 0.25, -1.0, 2.0]),
)
def test_formulas(logits, prompt, output, repetition, presence, frequency):
    row = np.array(logits, np.float32)
    expected = penalised(row, prompt, output, repetition, presence, frequency)
    counts = [np.bincount(np.array(t, int), minlength=12).astype(np.int32) for t in (prompt, output)]
    apply_penalties(row, *counts, repetition, presence, frequency)
    np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


def test_neutral_penalties_change_no_bit():
    row = np.random.default_rng(0).normal(size=500).astype(np.float32)
    before = row.copy()
    apply_penalties(row, np.ones(500, np.int32), np.ones(500, np.int32), 1.0, 0.0, 0.0)
    assert row.tobytes() == before.tobytes()


def test_a_forbidden_token_stays_forbidden():
    row = np.array([-np.inf, 1.0], np.float32)
    apply_penalties(row, np.ones(2, np.int32), np.ones(2, np.int32), 1.5, -2.0, -2.0)
    assert row[0] == -np.inf


def test_every_token_is_counted_once_from_start_to_end():
    """At top-k 1 the draw is the largest penalised logit, so one wrong count changes the sequence."""
    vocab, slot = 24, 2
    prompt = [3, 3, 3, 7, 1, 0, 7]
    parameters = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.45}
    state = make_state(4, vocab)
    state["output_counts"][slot] = 9  # an earlier request of the slot
    state["prompt_counts"][slot] = 9
    start(slot, state, prompt, top_k=1, **parameters)
    output: list[int] = []
    base = torch.randn(vocab, generator=torch.Generator().manual_seed(1)) * 2
    for _ in range(60):
        expected = int(np.argmax(penalised(base, prompt, output, 1.2, 0.3, 0.45)))
        tokens = sample(base[None], i32(slot), state)[0]
        commit(tokens, i32(slot), state)
        output.append(int(tokens))
        assert output[-1] == expected
    assert len(set(output)) > 5, "the penalties took effect"
    assert state["output_counts"][slot].tolist() == np.bincount(output, minlength=vocab).tolist()
    assert state["prompt_counts"][slot].tolist() == np.bincount(prompt, minlength=vocab).tolist()
    assert not state["output_counts"][[0, 1, 3]].any()

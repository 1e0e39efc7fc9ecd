"""Starting a request, consuming and committing tokens: each slot changes alone, and only when live."""

import numpy as np
import pytest
import torch
from slot_state import OPS, commit, i32, make_state, snapshot, start

from flare_components.ops.request_state import LENGTH, PARAMETERS, PROGRESS, STOP_TOKEN

VOCAB = 30


def decode_inputs(slots, state):
    return [
        t.tolist() for t in OPS.decode_inputs(slots, state["pending"], state["consumed"], state["finished"])
    ]


def test_start_writes_every_field_of_one_slot():
    state = make_state(3, VOCAB)
    for tensor in state.values():
        tensor.fill_(77)
    others = {name: tensor[[0, 2]].clone() for name, tensor in state.items()}
    values = {
        "temperature": 0.25,
        "top_p": 0.5,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.75,
        "top_k": 11,
        "min_tokens": 2,
        "max_tokens": 13,
        "logprobs_wanted": 4,
        "seed": -(2**63),
    }
    start(
        1, state, [2, 2, 29], epoch=6, **values, stop_ids=[3, 9], bias_ids=[8], bias_values=torch.arange(4.0)
    )
    assert {name: state[name][1].item() for name in values} == values
    assert state["stop_ids"][1].tolist() == [3, 9, -1]
    assert state["bias_ids"][1].tolist() == [8, -1, -1, -1]
    assert state["bias_values"][1].tolist() == [0, 1, 2, 3]
    progress = {"epoch": 6, "counter": 0, "generated": 0, "finished": 0, "pending": -1, "consumed": 0}
    assert {name: state[name][1].item() for name in progress} == progress
    assert state["prompt_counts"][1].tolist() == np.bincount([2, 2, 29], minlength=VOCAB).tolist()
    assert not state["output_counts"][1].any()
    for name, tensor in others.items():
        assert torch.equal(state[name][[0, 2]], tensor), name
    assert set(values) | {"stop_ids", "bias_ids", "bias_values"} == set(PARAMETERS)
    assert set(progress) | {"prompt_counts", "output_counts"} == set(PROGRESS)


def test_starting_a_padding_lane_changes_nothing():
    state = make_state(2, VOCAB)
    before = snapshot(state)
    start(-1, state, [1, 2, 3], temperature=0.5, seed=9)
    assert snapshot(state) == before


def test_a_prompt_token_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="broadcast"):
        start(0, make_state(1, VOCAB), [1, VOCAB])


def test_commit_counts_each_live_draw_once():
    state = make_state(4, VOCAB, max_tokens=5)
    state["stop_ids"][:, 1] = 9
    commit(i32(4, 9, -1), i32(2, 0, -1), state)
    assert state["counter"].tolist() == [1, 0, 1, 0]
    assert state["generated"].tolist() == [1, 0, 1, 0]
    assert state["pending"].tolist() == [9, -1, 4, -1]
    assert state["finished"].tolist() == [STOP_TOKEN, 0, 0, 0]
    assert state["output_counts"].sum().item() == 2
    assert state["output_counts"][2, 4] == 1
    assert state["output_counts"][0, 9] == 1


def test_a_slot_finishes_at_its_length_and_a_stop_token_there_is_a_stop():
    state = make_state(2, VOCAB, max_tokens=3)
    state["stop_ids"][:, 0] = 9
    for token, finished in [(1, 0), (2, 0), (3, LENGTH)]:
        commit(i32(token), i32(0), state)
        assert state["finished"][0] == finished
    for token, finished in [(1, 0), (2, 0), (9, STOP_TOKEN)]:
        commit(i32(token), i32(1), state)
        assert state["finished"][1] == finished


@pytest.mark.parametrize(("token", "slot"), [(4, -1), (-1, 1), (-2, 1), (4, 0)])
def test_padding_missing_invalid_and_finished_draws_change_nothing(token, slot):
    state = make_state(2, VOCAB)
    state["finished"][0] = STOP_TOKEN
    before = snapshot(state)
    commit(i32(token), i32(slot), state)
    assert snapshot(state) == before


def test_decode_consumes_the_pending_token_at_the_next_position():
    state = make_state(4, VOCAB)
    state["pending"][:] = i32(5, 6, 7, 8)
    state["consumed"][:] = i32(10, 11, 12, 13)
    state["finished"][2] = LENGTH
    slots = i32(3, -1, 2, 0)
    ids, positions, active = decode_inputs(slots, state)
    assert ids == [8, -1, -1, 5]
    assert positions == [13, 0, 0, 10]
    assert active == [3, -1, -1, 0]
    OPS.advance(i32(*active), i32(1, 1, 1, 1), state["consumed"])
    assert state["consumed"].tolist() == [11, 11, 12, 14]


def test_a_frame_queued_behind_the_end_changes_nothing():
    state = make_state(1, VOCAB)
    state["stop_ids"][0, 0] = 9
    start(0, state, [1, 2], stop_ids=[9])
    OPS.advance(i32(0), i32(2), state["consumed"])
    commit(i32(9), i32(0), state)
    before = snapshot(state)
    _, _, active = decode_inputs(i32(0), state)
    OPS.advance(i32(*active), i32(1), state["consumed"])
    commit(i32(3), i32(*active), state)
    commit(i32(3), i32(0), state)
    assert snapshot(state) == before

"""Counts of a request that starts again with its output as part of its history."""

import torch
from slot_state import i32, make_state, start

OPS = torch.ops.flare


def test_output_moves_from_prompt_counts_to_output_counts():
    state = make_state(2, 8)
    history = [3, 1, 3, 2, 3, 3]  # the last two are output
    start(1, state, history)
    before = {name: state[name].clone() for name in ("prompt_counts", "output_counts")}
    OPS.count_outputs(
        i32(1), i32(*history, -1), i32(6), i32(2), state["prompt_counts"], state["output_counts"]
    )
    assert state["prompt_counts"][1, :4].tolist() == [0, 1, 1, 2]
    assert state["output_counts"][1, :4].tolist() == [0, 0, 0, 2]
    for name, former in before.items():
        assert torch.equal(state[name][0], former[0])


def test_padding_and_a_first_start_change_nothing():
    state = make_state(2, 8)
    start(0, state, [1, 2])
    before = {name: tensor.clone() for name, tensor in state.items()}
    for slot, outputs in ((-1, 1), (0, 0)):
        OPS.count_outputs(
            i32(slot), i32(1, 2), i32(2), i32(outputs), state["prompt_counts"], state["output_counts"]
        )
    assert all(torch.equal(state[name], before[name]) for name in before)

"""Log-probabilities: the model's distribution, whatever the request does to it."""

import numpy as np
import pytest
import torch
from slot_state import i32, make_state, sample

from flare_components.ops.logprobs import most_likely


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_are_those_of_the_raw_logits(dtype):
    vocab, lanes = 5000, 6
    logits = (torch.randn(lanes, vocab, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    state = make_state(
        lanes, vocab, temperature=0.3, top_k=10, repetition_penalty=1.4, presence_penalty=1.0, min_tokens=9
    )
    state["output_counts"][:, ::3] = 2
    state["bias_ids"][:, 0], state["bias_values"][:, 0] = 4, 50.0
    state["logprobs_wanted"][:] = i32(0, 1, 5, 20, -1, 3)
    tokens, logprobs, top_ids, top_logprobs = sample(logits, i32(*range(lanes)), state)
    reference = torch.log_softmax(logits.double(), dim=-1)
    for lane, wanted in enumerate(state["logprobs_wanted"].tolist()):
        filled = max(wanted, 0)
        assert (top_ids[lane, filled:] == -1).all()
        assert (top_logprobs[lane, filled:] == 0).all()
        if wanted < 0:
            assert logprobs[lane] == 0
            continue
        assert logprobs[lane].item() == pytest.approx(reference[lane, tokens[lane]].item(), abs=2e-6)
        ids, values = top_ids[lane, :filled].long(), top_logprobs[lane, :filled]
        torch.testing.assert_close(values.double(), reference[lane, ids], atol=2e-6, rtol=0)
        order = np.lexsort((np.arange(vocab), -logits[lane].float().numpy()))
        assert ids.tolist() == order[:filled].tolist()


def test_equal_alternatives_come_in_id_order_up_to_the_last():
    row = np.array([1, 5, 2, 5, 5, 2, 2, 0], np.float32)
    for count in range(10):
        ids, values = most_likely(row, count)
        expected = [1, 3, 4, 2, 5, 6, 0, 7][:count]
        assert ids.tolist() == expected
        assert values.tolist() == row[expected].tolist()


def test_a_vocabulary_smaller_than_the_list_fills_what_it_has():
    state = make_state(1, 6, logprobs_wanted=20)
    _, _, top_ids, top_logprobs = sample(torch.zeros(1, 6), i32(0), state)
    assert top_ids[0].tolist() == [*range(6), *[-1] * 14]
    assert top_logprobs[0, :6].tolist() == pytest.approx([-np.log(6)] * 6)

"""Completion records: one complete record per lane, in the layout that the runtime reads."""

import pytest
import torch
from slot_state import OPS, i32, make_state

from flare.contract import METADATA_FIELDS, FinishCode, Record, Status
from flare_components.ops import completion, request_state

STATE = ("epoch", "counter", "generated", "finished", "consumed")


def test_the_layout_is_that_of_the_contract():
    assert {field.name: getattr(completion, field.name) for field in Record} == {f.name: f for f in Record}
    assert {code.name: getattr(completion, code.name) for code in Status} == {s.name: s for s in Status}
    assert completion.METADATA_FIELDS == METADATA_FIELDS
    assert request_state.STOP_TOKEN == FinishCode.STOP_TOKEN
    assert request_state.LENGTH == FinishCode.LENGTH


@pytest.mark.parametrize(("places", "width"), [(1, 20), (8, 5), (2, 0)])
def test_every_lane_is_written_completely(places, width):
    state = make_state(4, 30)
    state["epoch"][:] = i32(4, 5, 6, 7)
    state["counter"][:] = torch.tensor([0, (3 << 32) + 0x80000001, 2, 3])
    state["generated"][:] = i32(10, 11, 12, 13)
    state["consumed"][:] = i32(100, 101, 102, 103)
    state["finished"][:] = i32(0, 2, 0, 1)
    tokens, slots = i32(17, -1, -2, -1, -1), i32(1, -1, 2, 3, 0)
    lanes = len(slots)
    logprobs = torch.arange(5) - 5.0
    top_ids = torch.arange(100, dtype=torch.int32).view(5, 20)
    top_logprobs = -torch.arange(100.0).view(5, 20)
    records = torch.full((lanes, 16 + places), 99, dtype=torch.int32)
    record_logprobs = torch.full((lanes, places), 99.0)
    record_ids = torch.full((lanes, places, width), 99, dtype=torch.int32)
    record_top = torch.full((lanes, places, width), 99.0)
    OPS.write_completion(
        *(tokens, slots, *(state[name] for name in STATE), logprobs, top_ids, top_logprobs),
        *(records, record_logprobs, record_ids, record_top),
    )
    tail = [0] * (8 + places - 1)
    assert records.tolist() == [
        [Status.OK, 1, 5, 1, 2, 101, 11, 0x80000001 - (1 << 32), *[0] * 8, 17, *[0] * (places - 1)],
        [Status.PADDING, *[0] * 7, *tail, 0],
        [Status.INVALID, 2, 6, 0, 0, 102, 12, 2, *tail, 0],
        [Status.OK, 3, 7, 0, 1, 103, 13, 3, *tail, 0],
        [Status.OK, 0, 4, 0, 0, 100, 10, 0, *tail, 0],
    ]
    assert torch.equal(record_logprobs[:, 0], logprobs)
    assert torch.equal(record_ids[:, 0], top_ids[:, :width])
    assert torch.equal(record_top[:, 0], top_logprobs[:, :width])
    assert not record_logprobs[:, 1:].any()
    assert (record_ids[:, 1:] == -1).all()
    assert not record_top[:, 1:].any()

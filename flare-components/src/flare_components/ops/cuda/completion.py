"""`flare::write_completion`: one program a lane writes its whole record."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.completion import INVALID, METADATA_FIELDS, OK
from flare_components.ops.cuda.launch import power_of_two
from flare_components.ops.request_state import INVALID_TOKEN
from flare_components.ops.schema import accelerate


@triton.jit
def record(
    tokens,
    slots,
    epoch,
    counter,
    generated,
    finished,
    consumed,
    logprobs,
    top_ids,
    top_logprobs,
    records,
    record_logprobs,
    record_top_ids,
    record_top_logprobs,
    places,
    alternatives,
    sampled_row,
    VALID: tl.constexpr,
    BROKEN: tl.constexpr,
    NO_VALUES: tl.constexpr,
    FIELDS: tl.constexpr,
    BLOCK: tl.constexpr,
    TOP_BLOCK: tl.constexpr,
):
    """Fields of `flare_components.ops.completion`; `places` tokens and `alternatives` a token."""
    lane = tl.program_id(0)
    token, slot = tl.load(tokens + lane), tl.load(slots + lane)
    used = slot >= 0
    drawn = (used & (token >= 0)).to(tl.int32)
    field = tl.arange(0, BLOCK)
    row = tl.zeros((BLOCK,), tl.int32)
    row = tl.where(field == 0, tl.where(token == NO_VALUES, BROKEN, VALID), row)
    row = tl.where(field == 1, slot, row)
    row = tl.where(field == 2, tl.load(epoch + slot, mask=used, other=0), row)
    row = tl.where(field == 3, drawn, row)
    row = tl.where(field == 4, tl.load(finished + slot, mask=used, other=0), row)
    row = tl.where(field == 5, tl.load(consumed + slot, mask=used, other=0), row)
    row = tl.where(field == 6, tl.load(generated + slot, mask=used, other=0), row)
    row = tl.where(field == 7, tl.load(counter + slot, mask=used, other=0).to(tl.int32), row)
    row = tl.where((field == FIELDS) & (drawn > 0), token, row)
    width = FIELDS + places
    tl.store(records + lane * width + field, tl.where(used, row, 0), mask=field < width)
    place = tl.arange(0, BLOCK)
    value = tl.where(place == 0, tl.load(logprobs + lane), 0.0)
    tl.store(record_logprobs + lane * places + place, value, mask=place < places)
    top = tl.arange(0, TOP_BLOCK)
    first = top < alternatives
    ids = tl.load(top_ids + lane * sampled_row + top, mask=first, other=-1)
    values = tl.load(top_logprobs + lane * sampled_row + top, mask=first, other=0.0)
    inside = top < alternatives * places
    tl.store(record_top_ids + lane * places * alternatives + top, ids, mask=inside)
    tl.store(record_top_logprobs + lane * places * alternatives + top, values, mask=inside)


def write_completion(
    tokens: Tensor,
    slots: Tensor,
    epoch: Tensor,
    counter: Tensor,
    generated: Tensor,
    finished: Tensor,
    consumed: Tensor,
    logprobs: Tensor,
    top_ids: Tensor,
    top_logprobs: Tensor,
    records: Tensor,
    record_logprobs: Tensor,
    record_top_ids: Tensor,
    record_top_logprobs: Tensor,
) -> None:
    """As the operator's CPU kernel; every operand is contiguous."""
    lanes, places, alternatives = record_top_ids.shape
    record[(lanes,)](
        tokens,
        slots,
        epoch,
        counter,
        generated,
        finished,
        consumed,
        logprobs,
        top_ids,
        top_logprobs,
        records,
        record_logprobs,
        record_top_ids,
        record_top_logprobs,
        places,
        alternatives,
        top_ids.stride(0),
        VALID=OK,
        BROKEN=INVALID,
        NO_VALUES=INVALID_TOKEN,
        FIELDS=METADATA_FIELDS,
        BLOCK=power_of_two(METADATA_FIELDS + places),
        TOP_BLOCK=power_of_two(places * alternatives),
        num_warps=1,
    )


accelerate("write_completion", write_completion)

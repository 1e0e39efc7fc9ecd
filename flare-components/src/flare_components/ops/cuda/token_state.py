"""Token state of request slots: one small kernel an operator."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import power_of_two
from flare_components.ops.request_state import LENGTH, STOP_TOKEN
from flare_components.ops.schema import accelerate


@triton.jit
def read_pending(slots, pending, consumed, finished, ids, positions, active, lanes, BLOCK: tl.constexpr):
    """One program, all lanes."""
    lane = tl.arange(0, BLOCK)
    live = lane < lanes
    slot = tl.load(slots + lane, mask=live, other=-1)
    done = tl.load(finished + slot, mask=slot >= 0, other=1)
    slot = tl.where((slot >= 0) & (done == 0), slot, -1)
    tl.store(ids + lane, tl.load(pending + slot, mask=slot >= 0, other=-1), mask=live)
    tl.store(positions + lane, tl.load(consumed + slot, mask=slot >= 0, other=0), mask=live)
    tl.store(active + lane, slot, mask=live)


@triton.jit
def commit(
    tokens,
    slots,
    counter,
    generated,
    output_counts,
    pending,
    finished,
    max_tokens,
    stop_ids,
    counts_row,
    stop_row,
    stops,
    STOPPED: tl.constexpr,
    FULL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One lane a program."""
    lane = tl.program_id(0)
    token, slot = tl.load(tokens + lane), tl.load(slots + lane).to(tl.int64)
    if (token >= 0) & (slot >= 0):  # noqa: SIM102 (a padding lane has no slot to read)
        if tl.load(finished + slot) == 0:
            drawn = tl.load(generated + slot) + 1
            tl.store(generated + slot, drawn)
            tl.store(counter + slot, tl.load(counter + slot) + 1)
            count = output_counts + slot * counts_row + token
            tl.store(count, tl.load(count) + 1)
            tl.store(pending + slot, token)
            place = tl.arange(0, BLOCK)
            stop = tl.load(stop_ids + slot * stop_row + place, mask=place < stops, other=-1)
            if tl.max((stop == token).to(tl.int32), 0) > 0:
                tl.store(finished + slot, STOPPED)
            elif drawn >= tl.load(max_tokens + slot):
                tl.store(finished + slot, FULL)


@triton.jit
def add_counts(slots, counts, consumed, lanes, BLOCK: tl.constexpr):
    """One program, all lanes."""
    lane = tl.arange(0, BLOCK)
    slot = tl.load(slots + lane, mask=lane < lanes, other=-1)
    count = tl.load(counts + lane, mask=slot >= 0, other=0)
    tl.atomic_add(consumed + slot, count, mask=slot >= 0)


def decode_inputs(
    slots: Tensor, pending: Tensor, consumed: Tensor, finished: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As the operator's CPU kernel."""
    lanes = slots.shape[0]
    ids, positions, active = (slots.new_empty(lanes) for _ in range(3))
    read_pending[(1,)](
        slots, pending, consumed, finished, ids, positions, active, lanes, BLOCK=power_of_two(lanes)
    )
    return ids, positions, active


def commit_tokens(
    tokens: Tensor,
    slots: Tensor,
    counter: Tensor,
    generated: Tensor,
    output_counts: Tensor,
    pending: Tensor,
    finished: Tensor,
    max_tokens: Tensor,
    stop_ids: Tensor,
) -> None:
    """As the operator's CPU kernel."""
    commit[(slots.shape[0],)](
        tokens,
        slots,
        counter,
        generated,
        output_counts,
        pending,
        finished,
        max_tokens,
        stop_ids,
        output_counts.stride(0),
        stop_ids.stride(0),
        stop_ids.shape[1],
        STOPPED=STOP_TOKEN,
        FULL=LENGTH,
        BLOCK=power_of_two(stop_ids.shape[1]),
        num_warps=1,
    )


def advance(slots: Tensor, counts: Tensor, consumed: Tensor) -> None:
    """As the operator's CPU kernel."""
    lanes = slots.shape[0]
    add_counts[(1,)](slots, counts, consumed, lanes, BLOCK=power_of_two(lanes))


accelerate("decode_inputs", decode_inputs)
accelerate("commit_tokens", commit_tokens)
accelerate("advance", advance)

"""Token state of request slots: what a decode step consumes, and what a draw changes."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from flare_components.ops.request_state import LENGTH, STOP_TOKEN, arguments, check_operands
from flare_components.ops.schema import define

_DECODE = ("slots", "pending", "consumed", "finished")
_COMMIT = (
    "tokens",
    "slots",
    "counter",
    "generated",
    "output_counts",
    "pending",
    "finished",
    "max_tokens",
    "stop_ids",
)
_ADVANCE = ("slots", "counts", "consumed")


def _decode_inputs(
    slots: Tensor, pending: Tensor, consumed: Tensor, finished: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, counts, done = pending.tolist(), consumed.tolist(), finished.tolist()
    active = [slot if slot >= 0 and not done[slot] else -1 for slot in slots.tolist()]
    ids = [tokens[slot] if slot >= 0 else -1 for slot in active]
    positions = [counts[slot] if slot >= 0 else 0 for slot in active]
    as_lanes = torch.tensor([ids, positions, active], dtype=torch.int32)
    return as_lanes[0].clone(), as_lanes[1].clone(), as_lanes[2].clone()


def _decode_inputs_fake(*operands: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    check_operands("decode_inputs", _DECODE, operands)
    slots = operands[0]
    return slots.new_empty(slots.shape), slots.new_empty(slots.shape), slots.new_empty(slots.shape)


def _commit_tokens(
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
    # Single elements are written through numpy: a tensor subscript costs more than the rest of the step.
    draws, drawn, counts = counter.numpy(), generated.numpy(), output_counts.numpy()
    last, done, limits = pending.numpy(), finished.numpy(), max_tokens.numpy()
    for token, slot in zip(tokens.tolist(), slots.tolist(), strict=True):
        if token < 0 or slot < 0 or done[slot]:
            continue
        draws[slot] += 1
        drawn[slot] += 1
        counts[slot, token] += 1
        last[slot] = token
        if token in stop_ids[slot].tolist():
            done[slot] = STOP_TOKEN
        elif drawn[slot] >= limits[slot]:
            done[slot] = LENGTH


def _advance(slots: Tensor, counts: Tensor, consumed: Tensor) -> None:
    totals = consumed.numpy()
    for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
        if slot >= 0:
            totals[slot] += count


def _checked(operator: str, names: tuple[str, ...], *operands: Tensor) -> None:
    check_operands(operator, names, operands)


# -> ids i32[L] (pending tokens, -1 idle), positions i32[L] (tokens consumed so far, 0 idle), active i32[L]:
# the slots, -1 also where the slot has finished, so that a step queued behind its end changes nothing.
define(
    f"decode_inputs({arguments(_DECODE)}) -> (Tensor ids, Tensor positions, Tensor active)",
    cpu=_decode_inputs,
    fake=_decode_inputs_fake,
)
# Counts each successful draw of a live slot exactly once and makes it the pending token. The slot finishes
# with STOP_TOKEN on a stop token, with LENGTH when it has generated `max_tokens`.
define(
    "commit_tokens("
    + arguments(_COMMIT, ("counter", "generated", "output_counts", "pending", "finished"))
    + ") -> ()",
    cpu=_commit_tokens,
    fake=partial(_checked, "commit_tokens", _COMMIT),
)
# consumed[slot] += count for every lane with a slot.
define(
    f"advance({arguments(_ADVANCE, ('consumed',))}) -> ()",
    cpu=_advance,
    fake=partial(_checked, "advance", _ADVANCE),
)

"""`flare::write_completion`: what a program reports about every lane.

A record is `METADATA_FIELDS` integers, then C token places. The runtime reads the same layout as
`flare.contract.completion`, which this package does not import; a test compares the two.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from flare_components.ops.request_state import INVALID_TOKEN, arguments, check_operands
from flare_components.ops.schema import define

METADATA_FIELDS = 16
# Fields; 8 to 15 are reserved and zero.
STATUS, SLOT, EPOCH, TOKENS, FINISHED, CONSUMED, GENERATED, COUNTER = range(8)
# Values of STATUS.
PADDING, OK, INVALID = range(3)

_READS = (
    "tokens",
    "slots",
    "epoch",
    "counter",
    "generated",
    "finished",
    "consumed",
    "logprobs",
    "top_ids",
    "top_logprobs",
)
_WRITES = ("records", "record_logprobs", "record_top_ids", "record_top_logprobs")


def _write_completion(
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
    rows = records.numpy()
    rows[:] = 0
    for lane, (token, slot) in enumerate(zip(tokens.tolist(), slots.tolist(), strict=True)):
        if slot < 0:
            continue
        row = rows[lane]
        row[STATUS] = INVALID if token == INVALID_TOKEN else OK
        row[SLOT] = slot
        row[EPOCH] = epoch[slot].item()
        row[FINISHED] = finished[slot].item()
        row[CONSUMED] = consumed[slot].item()
        row[GENERATED] = generated[slot].item()
        row[COUNTER] = np.uint32(counter[slot].item() & 0xFFFFFFFF).view(np.int32)
        if token >= 0:
            row[TOKENS] = 1
            row[METADATA_FIELDS] = token
    width = record_top_ids.shape[2]
    record_logprobs.zero_()[:, 0] = logprobs
    record_top_ids.fill_(-1)[:, 0] = top_ids[:, :width]
    record_top_logprobs.zero_()[:, 0] = top_logprobs[:, :width]


def _write_completion_fake(*operands: Tensor) -> None:
    extents = check_operands("write_completion", (*_READS, *_WRITES), operands)
    if extents["R"] != METADATA_FIELDS + extents["C"] or extents["C"] < 1:
        raise ValueError(f"flare::write_completion: {extents['R']} integers for {extents['C']} tokens")
    if extents["T"] > extents["A"]:
        raise ValueError(
            f"flare::write_completion: {extents['T']} alternatives wanted, {extents['A']} are sampled"
        )


# Every lane's record is written completely: zeros for padding lanes, and for a slot without a draw (a chunk
# that is not the last, a slot that has finished, invalid logits) a record of no tokens.
define(
    f"write_completion({arguments((*_READS, *_WRITES), _WRITES)}) -> ()",
    cpu=_write_completion,
    fake=_write_completion_fake,
)

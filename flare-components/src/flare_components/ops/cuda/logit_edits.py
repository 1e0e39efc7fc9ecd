"""Edits of logits on the device: grammar mask, bias, minimum length and penalties, in the CPU's order."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def edit(
    row,
    token,
    inside,
    lane,
    slot,
    grammar_mask,
    bias_ids,
    bias_values,
    stop_ids,
    prompt_counts,
    output_counts,
    too_short,
    repetition,
    presence,
    frequency,
    vocab,
    stops,
    biases,
    mask_words,
    HAS_MASK: tl.constexpr,
    BIAS_BLOCK: tl.constexpr,
):
    """Edited float32 logits of the tokens `token`, which follow one another."""
    if HAS_MASK:
        word = tl.load(grammar_mask + lane * mask_words + token // 32, mask=inside, other=0)
        row = tl.where((word >> (token % 32)) & 1 == 0, float("-inf"), row)
    first, last = tl.min(token, 0), tl.max(token, 0)
    place = tl.arange(0, BIAS_BLOCK)
    biased = tl.load(bias_ids + slot * biases + place, mask=place < biases, other=-1)
    if tl.max(((biased >= first) & (biased <= last)).to(tl.int32), 0) > 0:
        for number in range(biases):
            wanted = tl.load(bias_ids + slot * biases + number)
            value = tl.load(bias_values + slot * biases + number)
            row = tl.where(token == wanted, row + value, row)
    if too_short:
        for number in range(stops):
            row = tl.where(token == tl.load(stop_ids + slot * stops + number), float("-inf"), row)
    if (repetition != 1.0) | (presence != 0.0) | (frequency != 0.0):
        drawn = tl.load(output_counts + slot * vocab + token, mask=inside, other=0)
        if repetition != 1.0:
            seen = (tl.load(prompt_counts + slot * vocab + token, mask=inside, other=0) | drawn) != 0
            factor = tl.zeros_like(row) + repetition
            changed = tl.where(row > 0, tl.div_rn(row, factor), row * factor)
            row = tl.where(seen, changed, row)
        if (presence != 0.0) | (frequency != 0.0):
            penalised = row - drawn.to(tl.float32) * frequency - presence
            row = tl.where(drawn != 0, penalised, row)
    return row

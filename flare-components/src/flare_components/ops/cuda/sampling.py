"""`flare::sample`: one kernel; the lanes' programs work in teams that meet between steps.

Every step of the CPU kernel is here in its order: edits in float32 with its roundings, filters as one cut
through the sorted logits, one Philox uniform, the inverse of the cumulative weights in vocabulary order. The
uniform has the same bits. Weights are rounded to 2^-shift of the largest one, shift 44 for a vocabulary of
2^18, where the CPU kernel sums float64: a draw from equal logits differs only when the uniform falls within
about V * 2^-shift of a token's edge, and a token less likely than 2^-shift of the top one is never drawn.
Logits of the two devices round differently before that; that is what makes texts differ.

All sums are integers, so a draw depends on the request alone, not on lanes, slots, teams or batches.

A team shares a lane's vocabulary. Its programs wait for each other, so all programs of a launch must fit the
device at once: the launch has at most one a multiprocessor, and lanes beyond that are teams of one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import cdiv, power_of_two, processors
from flare_components.ops.cuda.logit_edits import edit
from flare_components.ops.cuda.logit_keys import key_of, meet, value_of
from flare_components.ops.cuda.philox import uniform
from flare_components.ops.request_state import ALTERNATIVES, INVALID_TOKEN, NO_TOKEN
from flare_components.ops.schema import accelerate

_SUB = 1024  # tokens a program compares with all edges at once
_WIDE = 4096  # tokens it looks at otherwise, at most
_LARGEST_TEAM = 128

# Places of a lane's tally, i64, zero before the launch.
_RAW_PEAK, _PEAK, _EXPONENTIALS, _TOTAL = range(4)
_MEETINGS = 8  # arrivals at each meeting: at most 3 + 8 + 1 + 8 + ALTERNATIVES
_COUNTS = 64  # 8 passes of 16
_MASSES = 192  # 8 passes of 16
_SHARES = 320  # of each program
_TOPS = 448  # ALTERNATIVES
_TALLY = 480


@triton.jit
def descend(
    edited,
    weights,
    tally,
    arrivals,
    target,
    bound,
    start,
    span,
    vocab,
    passes,
    COUNT: tl.constexpr,
    TEAM: tl.constexpr,
    SUB: tl.constexpr,
):
    """The largest key such that the tokens that reach it, of those that reach `bound`, number (COUNT) or
    weigh at least `target`: four bits a pass from the top. `tally`: this search's 8 * 16 places."""
    prefix = target * 0
    digit = tl.arange(0, 16)
    for step in range(passes):
        shift = 28 - 4 * step
        edges = prefix + (digit.to(tl.int64) << shift)
        reached = tl.zeros((16, SUB), tl.int64)
        for offset in tl.range(0, span, SUB, loop_unroll_factor=4):
            token = start + offset + tl.arange(0, SUB)
            live = token < vocab
            key = key_of(tl.load(edited + token, mask=live, other=float("-inf")))
            if COUNT:
                amount = live.to(tl.int64)
            else:
                amount = tl.load(weights + token, mask=live & (key >= bound), other=0)
            reached += tl.where(key[None, :] >= edges[:, None], amount[None, :], 0)
        tl.atomic_add(tally + step * 16 + digit, tl.sum(reached, 1))
        if TEAM > 1:
            meet(arrivals + step, TEAM)
        else:
            tl.debug_barrier()
        sums = tl.load(tally + step * 16 + digit, volatile=True)
        best = tl.max(tl.where(sums >= target, digit, 0), 0)
        prefix += best.to(tl.int64) << shift
    return prefix


@triton.jit
def draw(
    logits,
    slots,
    temperature,
    top_k,
    top_p,
    min_p,
    repetition_penalty,
    presence_penalty,
    frequency_penalty,
    seed,
    counter,
    generated,
    min_tokens,
    finished,
    stop_ids,
    bias_ids,
    bias_values,
    prompt_counts,
    output_counts,
    logprobs_wanted,
    grammar_mask,
    edited,
    weights,
    tallies,
    tokens,
    logprobs,
    top_ids,
    top_logprobs,
    vocab,
    logits_row,
    stops,
    biases,
    mask_words,
    span,
    unit,
    HAS_MASK: tl.constexpr,
    BIAS_BLOCK: tl.constexpr,
    TEAM: tl.constexpr,
    TEAM_BLOCK: tl.constexpr,
    SUB: tl.constexpr,
    WIDE: tl.constexpr,
    TALLY: tl.constexpr,
    MEETINGS: tl.constexpr,
    COUNTS: tl.constexpr,
    MASSES: tl.constexpr,
    SHARES: tl.constexpr,
    TOPS: tl.constexpr,
    MOST: tl.constexpr,
    NOTHING: tl.constexpr,
    BROKEN: tl.constexpr,
):
    """Program (lane, member of its team), which has tokens member * span to (member + 1) * span. edited f32
    and weights i64 [L, vocab] are scratch; tallies i64[L, TALLY] is zero."""
    lane, member = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots + lane).to(tl.int64)
    live = slot >= 0
    if live:
        live = tl.load(finished + slot) == 0
    place = tl.arange(0, 32)
    if member == 0:
        tl.store(tokens + lane, NOTHING)
        tl.store(logprobs + lane, 0.0)
        tl.store(top_ids + lane * MOST + place, tl.full((32,), -1, tl.int32), mask=place < MOST)
        tl.store(top_logprobs + lane * MOST + place, tl.zeros((32,), tl.float32), mask=place < MOST)
    if live:
        logits += lane * logits_row
        edited += lane * vocab
        weights += lane * vocab
        tally = tallies + lane * TALLY
        start = member * span
        repetition = tl.load(repetition_penalty + slot)
        presence, frequency = tl.load(presence_penalty + slot), tl.load(frequency_penalty + slot)
        bias = tl.arange(0, BIAS_BLOCK)
        biased = tl.load(bias_ids + slot * biases + bias, mask=bias < biases, other=-1)
        # Logits that stay bfloat16 differ in the upper half of their keys alone.
        passes = 8
        if logits.dtype.element_ty == tl.bfloat16:
            neutral = (repetition == 1.0) & (presence == 0.0) & (frequency == 0.0) & (tl.max(biased, 0) < 0)
            passes = tl.where(neutral, 4, 8)
        raw_key = tl.zeros((WIDE,), tl.int64)
        edited_key = tl.zeros((WIDE,), tl.int64)
        for offset in range(0, span, WIDE):
            token = start + offset + tl.arange(0, WIDE)
            inside = token < vocab
            raw = tl.load(logits + token, mask=inside, other=float("-inf")).to(tl.float32)
            raw_key = tl.maximum(raw_key, key_of(raw))
            row = edit(
                raw,
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
                tl.load(generated + slot) < tl.load(min_tokens + slot),
                repetition,
                presence,
                frequency,
                vocab,
                stops,
                biases,
                mask_words,
                HAS_MASK,
                BIAS_BLOCK,
            )
            edited_key = tl.maximum(edited_key, key_of(row))
            tl.store(edited + token, row, mask=inside)
        tl.atomic_max(tally, tl.max(raw_key, 0))
        tl.atomic_max(tally + 1, tl.max(edited_key, 0))
        arrivals = tally + MEETINGS
        if TEAM > 1:
            meet(arrivals, TEAM)
        else:
            tl.debug_barrier()
        raw_peak = value_of(tl.load(tally, volatile=True))
        peak = value_of(tl.load(tally + 1, volatile=True))
        heat = tl.load(temperature + slot)
        if (tl.abs(raw_peak) < float("inf")) & (tl.abs(peak) < float("inf")) & (heat > 0.0):
            wanted = tl.load(logprobs_wanted + slot)
            least = tl.load(min_p + slot).to(tl.float64)
            mass = tl.zeros((WIDE,), tl.int64)
            exponentials = tl.zeros((WIDE,), tl.int64)
            for offset in range(0, span, WIDE):
                token = start + offset + tl.arange(0, WIDE)
                inside = token < vocab
                row = tl.load(edited + token, mask=inside, other=float("-inf"))
                chance = tl.exp((row.to(tl.float64) - peak.to(tl.float64)) / heat.to(tl.float64))
                weight = (chance * unit + 0.5).to(tl.int64)
                weight = tl.where(inside & (chance >= least), weight, 0)
                tl.store(weights + token, weight, mask=inside)
                mass += weight
                if wanted >= 0:
                    raw = tl.load(logits + token, mask=inside, other=float("-inf")).to(tl.float32)
                    exponentials += (tl.exp(raw - raw_peak).to(tl.float64) * unit + 0.5).to(tl.int64)
            if wanted >= 0:
                tl.atomic_add(tally + 2, tl.sum(exponentials, 0))
            tl.debug_barrier()
            bound = tl.max(raw_key, 0) * 0
            k = tl.load(top_k + slot)
            if (k > 0) & (k < vocab):
                bound = descend(
                    edited,
                    weights,
                    tally + COUNTS,
                    arrivals + 1,
                    k.to(tl.int64),
                    bound,
                    start,
                    span,
                    vocab,
                    passes,
                    True,
                    TEAM,
                    SUB,
                )
                mass = tl.zeros((WIDE,), tl.int64)
                for offset in range(0, span, WIDE):
                    token = start + offset + tl.arange(0, WIDE)
                    inside = token < vocab
                    key = key_of(tl.load(edited + token, mask=inside, other=float("-inf")))
                    mass += tl.load(weights + token, mask=inside & (key >= bound), other=0)
            p = tl.load(top_p + slot).to(tl.float64)
            if p < 1.0:
                tl.atomic_add(tally + 3, tl.sum(mass, 0))
                if TEAM > 1:
                    meet(arrivals + 9, TEAM)
                else:
                    tl.debug_barrier()
                total = tl.load(tally + 3, volatile=True)
                share = tl.ceil(p * total.to(tl.float64)).to(tl.int64)
                share = tl.minimum(tl.maximum(share, 1), total)
                bound = descend(
                    edited,
                    weights,
                    tally + MASSES,
                    arrivals + 10,
                    share,
                    bound,
                    start,
                    span,
                    vocab,
                    passes,
                    False,
                    TEAM,
                    SUB,
                )
            mass = tl.zeros((WIDE,), tl.int64)
            for offset in range(0, span, WIDE):
                token = start + offset + tl.arange(0, WIDE)
                inside = token < vocab
                key = key_of(tl.load(edited + token, mask=inside, other=float("-inf")))
                mass += tl.load(weights + token, mask=inside & (key >= bound), other=0)
            tl.atomic_add(tally + SHARES + member, tl.sum(mass, 0))
            if TEAM > 1:
                meet(arrivals + 18, TEAM)
            else:
                tl.debug_barrier()
            index = tl.arange(0, TEAM_BLOCK)
            shares = tl.load(tally + SHARES + index, mask=index < TEAM, other=0, volatile=True)
            total = tl.sum(shares, 0)
            running = tl.sum(tl.where(index < member, shares, 0), 0)
            chance = uniform(tl.load(seed + slot), tl.load(counter + slot))
            target = tl.ceil(chance * total.to(tl.float64)).to(tl.int64)
            target = tl.minimum(tl.maximum(target, 1), total)
            normalizer = 0.0
            if wanted >= 0:
                scale = tl.load(tally + 2, volatile=True).to(tl.float64) / unit
                normalizer = (raw_peak.to(tl.float64) + tl.log(scale)).to(tl.float32)
            mine = tl.sum(tl.where(index == member, shares, 0), 0)
            if (running < target) & (target <= running + mine):
                for offset in range(0, span, WIDE):
                    token = start + offset + tl.arange(0, WIDE)
                    inside = token < vocab
                    key = key_of(tl.load(edited + token, mask=inside, other=float("-inf")))
                    weight = tl.load(weights + token, mask=inside & (key >= bound), other=0)
                    here = tl.sum(weight, 0)
                    if (running < target) & (target <= running + here):
                        below = running + tl.cumsum(weight, 0) < target
                        drawn = start + offset + tl.sum(below.to(tl.int32), 0)
                        tl.store(tokens + lane, drawn)
                        if wanted >= 0:
                            tl.store(logprobs + lane, tl.load(logits + drawn).to(tl.float32) - normalizer)
                    running += here
            if wanted > 0:
                found = tl.full((32,), -1, tl.int32)
                values = tl.zeros((32,), tl.float32)
                limit = tl.max(raw_key, 0) * 0 + 4611686018427387904
                for number in range(tl.minimum(wanted, MOST)):
                    best = tl.zeros((WIDE,), tl.int64)
                    for offset in range(0, span, WIDE):
                        token = start + offset + tl.arange(0, WIDE)
                        inside = token < vocab
                        raw = tl.load(logits + token, mask=inside, other=float("-inf")).to(tl.float32)
                        packed = key_of(raw) * 16777216 + (16777215 - token)
                        best = tl.maximum(best, tl.where(inside & (packed < limit), packed, 0))
                    tl.atomic_max(tally + TOPS + number, tl.max(best, 0))
                    if TEAM > 1:
                        meet(arrivals + 19 + number, TEAM)
                    else:
                        tl.debug_barrier()
                    limit = tl.load(tally + TOPS + number, volatile=True)
                    chosen = (16777215 - limit % 16777216).to(tl.int32)
                    value = value_of(limit // 16777216) - normalizer
                    found = tl.where((place == number) & (limit > 0), chosen, found)
                    values = tl.where((place == number) & (limit > 0), value, values)
                if member == 0:
                    tl.store(top_ids + lane * MOST + place, found, mask=place < MOST)
                    tl.store(top_logprobs + lane * MOST + place, values, mask=place < MOST)
        else:
            if member == 0:
                tl.store(tokens + lane, BROKEN)


def team_size(lanes: int, vocab: int, multiprocessors: int) -> int:
    """Programs a lane: all lanes' together at most one a multiprocessor, unless every team is one."""
    return max(min(multiprocessors // max(lanes, 1), cdiv(vocab, _SUB), _LARGEST_TEAM), 1)


def sample(
    logits: Tensor,
    slots: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    repetition_penalty: Tensor,
    presence_penalty: Tensor,
    frequency_penalty: Tensor,
    seed: Tensor,
    counter: Tensor,
    generated: Tensor,
    min_tokens: Tensor,
    finished: Tensor,
    stop_ids: Tensor,
    bias_ids: Tensor,
    bias_values: Tensor,
    prompt_counts: Tensor,
    output_counts: Tensor,
    logprobs_wanted: Tensor,
    grammar_mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As the operator's CPU kernel, up to 2^24 tokens.

    A temperature that is not positive, which the CPU kernel refuses, draws INVALID_TOKEN."""
    lanes, vocab = logits.shape
    assert vocab <= 1 << 24, f"{vocab} tokens"
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    tokens = slots.new_empty(lanes)
    logprobs = slots.new_empty(lanes, dtype=torch.float32)
    top_ids = slots.new_empty(lanes, ALTERNATIVES)
    top_logprobs = slots.new_empty((lanes, ALTERNATIVES), dtype=torch.float32)
    edited = slots.new_empty((lanes, vocab), dtype=torch.float32)
    weights = slots.new_empty((lanes, vocab), dtype=torch.int64)
    tallies = slots.new_zeros((lanes, _TALLY), dtype=torch.int64)
    team = team_size(lanes, vocab, processors(logits))
    wide = min(max(power_of_two(cdiv(vocab, team)), _SUB), _WIDE)
    draw[(lanes, team)](
        logits,
        slots,
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        seed,
        counter,
        generated,
        min_tokens,
        finished,
        stop_ids,
        bias_ids,
        bias_values,
        prompt_counts,
        output_counts,
        logprobs_wanted,
        slots if grammar_mask is None else grammar_mask,
        edited,
        weights,
        tallies,
        tokens,
        logprobs,
        top_ids,
        top_logprobs,
        vocab,
        logits.stride(0),
        stop_ids.shape[1],
        bias_ids.shape[1],
        0 if grammar_mask is None else grammar_mask.shape[1],
        cdiv(cdiv(vocab, team), wide) * wide,
        float(1 << (62 - (vocab - 1).bit_length())),
        HAS_MASK=grammar_mask is not None,
        BIAS_BLOCK=power_of_two(bias_ids.shape[1]),
        TEAM=team,
        TEAM_BLOCK=power_of_two(team),
        SUB=_SUB,
        WIDE=wide,
        TALLY=_TALLY,
        MEETINGS=_MEETINGS,
        COUNTS=_COUNTS,
        MASSES=_MASSES,
        SHARES=_SHARES,
        TOPS=_TOPS,
        MOST=ALTERNATIVES,
        NOTHING=NO_TOKEN,
        BROKEN=INVALID_TOKEN,
        num_warps=16,
        enable_fp_fusion=False,  # edits round as on the CPU
    )
    return tokens, logprobs, top_ids, top_logprobs


accelerate("sample", sample)

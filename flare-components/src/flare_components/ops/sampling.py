"""`flare::sample`: one draw per lane from the request's own distribution and random stream.

Order of the steps, which is that of vLLM's V1 engine (grammar mask, then `vllm/v1/sample/sampler.py`, where
the minimum length comes before the bias: the two commute, a forbidden token stays so under any finite bias):

1. grammar mask, 2. logit bias, 3. stop tokens forbidden before `min_tokens`, 4. repetition, then presence
and frequency penalties, 5. temperature, 6. min-p, 7. top-k, 8. top-p, 9. draw.

The draw inverts the cumulative distribution over the kept tokens in vocabulary order, in float64, at one
Philox uniform. Every row is computed alone on 1-D arrays of the same length, so equal logits, parameters,
seed and counter give the same token in any lane, slot, batch and capacity.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flare_components.ops.filters import Filters, Weights, keep
from flare_components.ops.logit_edits import apply_bias, apply_grammar_mask, forbid_stop
from flare_components.ops.logprobs import log_normalizer, most_likely
from flare_components.ops.penalties import apply_penalties
from flare_components.ops.philox import uniform
from flare_components.ops.request_state import (
    ALTERNATIVES,
    INVALID_TOKEN,
    NO_TOKEN,
    arguments,
    check_operands,
)
from flare_components.ops.schema import define

READS = (
    "logits",
    "slots",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "counter",
    "generated",
    "min_tokens",
    "finished",
    "stop_ids",
    "bias_ids",
    "bias_values",
    "prompt_counts",
    "output_counts",
    "logprobs_wanted",
)


def widen(row: Tensor) -> NDArray[np.float32]:
    """`row` [V] of any floating type as float32; shares memory when it is float32."""
    if row.dtype == torch.bfloat16:
        # torch would split so long a row among threads, and their barrier costs milliseconds on a busy
        # machine; shifting the bits is exact and takes 16 us on one.
        bits: NDArray[np.int32] = row.view(torch.int16).numpy().astype(np.int32) << 16
        return bits.view(np.float32)
    values: NDArray[np.float32] = row.float().contiguous().numpy()
    return values


def invert(weights: Weights, u: float) -> int:
    """Index of the first entry at which the cumulative weight reaches `u` of the total, u in (0, 1).

    An entry of weight 0 is never returned: the weight before it is the same, and less than what is wanted.
    """
    cumulative = torch.cumsum(torch.from_numpy(weights), 0).numpy()
    return int(np.searchsorted(cumulative, u * cumulative[-1]))


def draw(row: NDArray[np.float32], filters: Filters, u: float) -> int:
    """Draw from edited logits `row` f32[V]; INVALID_TOKEN when its maximum is not finite."""
    peak = float(row.max())
    if not math.isfinite(peak):
        return INVALID_TOKEN
    ids, weights = keep(row, peak, filters)
    index = invert(weights, u)
    return index if ids is None else int(ids[index])


def _sample(
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
    lanes, done = slots.tolist(), finished.tolist()
    tokens = np.full(len(lanes), NO_TOKEN, np.int32)
    logprobs = np.zeros(len(lanes), np.float32)
    top_ids = np.full((len(lanes), ALTERNATIVES), -1, np.int32)
    top_logprobs = np.zeros((len(lanes), ALTERNATIVES), np.float32)
    for lane, slot in enumerate(lanes):
        if slot < 0 or done[slot]:
            continue
        raw = widen(logits[lane])
        peak = float(raw.max())
        if not math.isfinite(peak):
            tokens[lane] = INVALID_TOKEN
            continue
        row = raw.copy()
        if grammar_mask is not None:
            apply_grammar_mask(row, grammar_mask[lane].numpy())
        apply_bias(row, bias_ids[slot].numpy(), bias_values[slot].numpy())
        if generated[slot].item() < min_tokens[slot].item():
            forbid_stop(row, stop_ids[slot].numpy())
        apply_penalties(
            row,
            prompt_counts[slot].numpy(),
            output_counts[slot].numpy(),
            repetition_penalty[slot].item(),
            presence_penalty[slot].item(),
            frequency_penalty[slot].item(),
        )
        filters = Filters(
            temperature=temperature[slot].item(),
            top_k=int(top_k[slot].item()),
            top_p=top_p[slot].item(),
            min_p=min_p[slot].item(),
        )
        assert filters.temperature > 0.0, f"slot {slot} samples at temperature {filters.temperature}"
        tokens[lane] = draw(row, filters, uniform(int(seed[slot].item()), int(counter[slot].item())))
        wanted = int(logprobs_wanted[slot].item())
        if wanted >= 0 and tokens[lane] >= 0:
            normalizer = log_normalizer(raw, peak)
            logprobs[lane] = raw[tokens[lane]] - normalizer
            ids, values = most_likely(raw, min(wanted, ALTERNATIVES))
            top_ids[lane, : ids.size] = ids
            top_logprobs[lane, : ids.size] = values - normalizer
    return (
        torch.from_numpy(tokens),
        torch.from_numpy(logprobs),
        torch.from_numpy(top_ids),
        torch.from_numpy(top_logprobs),
    )


def _sample_fake(*operands: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *reads, mask = operands
    names = READS if mask is None else (*READS, "grammar_mask")
    tensors = [tensor for tensor in (*reads, mask) if tensor is not None]
    extents = check_operands("sample", names, tensors)
    if mask is not None and extents["G"] != -(-extents["V"] // 32):
        raise ValueError(f"flare::sample: grammar_mask has {extents['G']} words for {extents['V']} tokens")
    slots, lanes = tensors[1], extents["L"]
    return (
        slots.new_empty((lanes,)),
        slots.new_empty((lanes,), dtype=torch.float32),
        slots.new_empty((lanes, ALTERNATIVES)),
        slots.new_empty((lanes, ALTERNATIVES), dtype=torch.float32),
    )


# -> tokens i32[L] (NO_TOKEN, INVALID_TOKEN), logprobs f32[L], top_ids i32[L, 20] (-1 behind the last),
# top_logprobs f32[L, 20]. Log-probabilities are 0 for lanes that did not ask.
define(
    f"sample({arguments(READS)}, Tensor? grammar_mask)"
    " -> (Tensor tokens, Tensor logprobs, Tensor top_ids, Tensor top_logprobs)",
    cpu=_sample,
    fake=_sample_fake,
)

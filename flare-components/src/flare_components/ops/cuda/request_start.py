"""`flare::start_request` and `flare::count_outputs`: three kernels start a request, one moves its output."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import cdiv, power_of_two
from flare_components.ops.request_state import PARAMETERS, PROGRESS
from flare_components.ops.schema import accelerate

_BLOCK = 1024
_SCALARS = tuple(name for name, (_, dims) in PARAMETERS.items() if dims == "S")
_LISTS = tuple(name for name in PARAMETERS if name not in _SCALARS)


@triton.jit
def begin(slots, epochs, uploaded, state, lists, new_lists, progress, sizes, BLOCK: tl.constexpr):
    """One program. uploaded, state, lists, new_lists: tuples of pointers in one order; sizes: elements of
    each list; progress: epoch, counter, generated, finished, pending, consumed."""
    slot = tl.load(slots).to(tl.int64)
    if slot >= 0:
        for i in tl.static_range(len(uploaded)):
            tl.store(state[i] + slot, tl.load(uploaded[i]))
        place = tl.arange(0, BLOCK)
        for i in tl.static_range(len(lists)):
            value = tl.load(new_lists[i] + place, mask=place < sizes[i])
            tl.store(lists[i] + slot * sizes[i] + place, value, mask=place < sizes[i])
        epoch, counter, generated, finished, pending, consumed = progress
        tl.store(epoch + slot, tl.load(epochs))
        tl.store(counter + slot, 0)
        tl.store(generated + slot, 0)
        tl.store(finished + slot, 0)
        tl.store(pending + slot, -1)
        tl.store(consumed + slot, 0)


@triton.jit
def clear_counts(slots, prompt_counts, output_counts, vocab, BLOCK: tl.constexpr):
    """Counts [S, vocab] of the slot become zero."""
    slot = tl.load(slots).to(tl.int64)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (token < vocab) & (slot >= 0)
    zero = tl.zeros((BLOCK,), tl.int32)
    tl.store(prompt_counts + slot * vocab + token, zero, mask=live)
    tl.store(output_counts + slot * vocab + token, zero, mask=live)


@triton.jit
def count_prompt(slots, prompt, prompt_length, prompt_counts, places, vocab, BLOCK: tl.constexpr):
    """prompt_counts of the slot += occurrences in prompt[:length]."""
    slot, length = tl.load(slots).to(tl.int64), tl.load(prompt_length)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (place < length) & (place < places) & (slot >= 0)
    token = tl.load(prompt + place, mask=live, other=-1)
    tl.atomic_add(prompt_counts + slot * vocab + token, 1, mask=live & (token >= 0) & (token < vocab))


@triton.jit
def move_counts(
    slots,
    prompt,
    prompt_length,
    output_length,
    prompt_counts,
    output_counts,
    places,
    vocab,
    BLOCK: tl.constexpr,
):
    """Occurrences in the last `output_length` tokens of the prompt move from one table to the other."""
    slot, length = tl.load(slots).to(tl.int64), tl.load(prompt_length)
    first = length - tl.load(output_length)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (place >= first) & (place < length) & (place < places) & (slot >= 0)
    token = tl.load(prompt + place, mask=live, other=-1)
    live = live & (token >= 0) & (token < vocab)
    tl.atomic_add(prompt_counts + slot * vocab + token, -1, mask=live)
    tl.atomic_add(output_counts + slot * vocab + token, 1, mask=live)


def start_request(
    slots: Tensor, epochs: Tensor, prompt: Tensor, prompt_length: Tensor, *rest: Tensor
) -> None:
    """As the operator's CPU kernel; state is contiguous."""
    uploaded = dict(zip(PARAMETERS, rest, strict=False))
    state = dict(zip((*PARAMETERS, *PROGRESS), rest[len(PARAMETERS) :], strict=True))
    sizes = tuple(uploaded[name].shape[0] for name in _LISTS)
    begin[(1,)](
        slots,
        epochs,
        tuple(uploaded[name] for name in _SCALARS),
        tuple(state[name] for name in _SCALARS),
        tuple(state[name] for name in _LISTS),
        tuple(uploaded[name] for name in _LISTS),
        tuple(state[name] for name in ("epoch", "counter", "generated", "finished", "pending", "consumed")),
        sizes,
        BLOCK=power_of_two(max(sizes)),
        num_warps=1,
    )
    counts, vocab = state["prompt_counts"], state["prompt_counts"].shape[1]
    clear_counts[(cdiv(vocab, _BLOCK),)](slots, counts, state["output_counts"], vocab, BLOCK=_BLOCK)
    places = prompt.shape[0]
    if places:
        count_prompt[(cdiv(places, _BLOCK),)](
            slots, prompt, prompt_length, counts, places, vocab, BLOCK=_BLOCK
        )


def count_outputs(
    slots: Tensor,
    prompt: Tensor,
    prompt_length: Tensor,
    output_length: Tensor,
    prompt_counts: Tensor,
    output_counts: Tensor,
) -> None:
    """As the operator's CPU kernel."""
    places = prompt.shape[0]
    if places:
        move_counts[(cdiv(places, _BLOCK),)](
            slots,
            prompt,
            prompt_length,
            output_length,
            prompt_counts,
            output_counts,
            places,
            prompt_counts.shape[1],
            BLOCK=_BLOCK,
        )


accelerate("start_request", start_request)
accelerate("count_outputs", count_outputs)

"""`flare::start_request`: a slot begins a request."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from flare_components.ops.request_state import PARAMETERS, PROGRESS, arguments, check_operands
from flare_components.ops.schema import define

_STATE = (*PARAMETERS, *PROGRESS)
_OPERANDS = ("slots", "epochs", "prompt", "prompt_length", *(f"new_{name}" for name in PARAMETERS), *_STATE)


def _start_request(
    slots: Tensor, epochs: Tensor, prompt: Tensor, prompt_length: Tensor, *rest: Tensor
) -> None:
    (slot,), (epoch,), (length,) = slots.tolist(), epochs.tolist(), prompt_length.tolist()
    if slot < 0:
        return
    assert 0 <= length <= prompt.numel(), f"prompt of {length} tokens in {prompt.numel()} places"
    state = {name: tensor.numpy() for name, tensor in zip(_STATE, rest[len(PARAMETERS) :], strict=True)}
    for name, tensor in zip(PARAMETERS, rest, strict=False):
        value = tensor.numpy()
        state[name][slot] = value if state[name].ndim == 2 else value[0]
    for name in ("counter", "generated", "finished", "consumed", "output_counts"):
        state[name][slot] = 0
    state["epoch"][slot] = epoch
    state["pending"][slot] = -1
    counts = state["prompt_counts"]
    counts[slot] = np.bincount(prompt[:length].numpy(), minlength=counts.shape[1])


def _start_request_fake(*operands: Tensor) -> None:
    extents = check_operands("start_request", _OPERANDS, operands)
    if extents["L"] != 1:
        raise ValueError(f"flare::start_request: {extents['L']} lanes, it starts one request")


# Writes the slot's parameters, counts the whole prompt (also when a prefix of it is restored afterwards: the
# counts are no part of a checkpoint), and resets progress: nothing is consumed, drawn or pending.
define(f"start_request({arguments(_OPERANDS, _STATE)}) -> ()", cpu=_start_request, fake=_start_request_fake)


def _count_outputs(
    slots: Tensor,
    prompt: Tensor,
    prompt_length: Tensor,
    output_length: Tensor,
    prompt_counts: Tensor,
    output_counts: Tensor,
) -> None:
    (slot,), (length,), (outputs,) = slots.tolist(), prompt_length.tolist(), output_length.tolist()
    if slot < 0 or not outputs:
        return
    assert 0 <= outputs < length, f"{outputs} of {length} tokens are output"
    counts = np.bincount(prompt[length - outputs : length].numpy(), minlength=prompt_counts.shape[1])
    prompt_counts.numpy()[slot] -= counts
    output_counts.numpy()[slot] += counts


_COUNTED = ("slots", "prompt", "prompt_length", "output_length", "prompt_counts", "output_counts")


def _count_outputs_fake(*operands: Tensor) -> None:
    check_operands("count_outputs", _COUNTED, operands)


# A preempted request starts again with its whole history as the prompt: after `start_request` counted
# all of it, the last `output_length` tokens move to where output is counted.
define(
    f"count_outputs({arguments(_COUNTED, _COUNTED[-2:])}) -> ()",
    cpu=_count_outputs,
    fake=_count_outputs_fake,
)

"""Request state of S slots for tests, and calls of the operators with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import flare_components.ops  # noqa: F401  (registers the operators)
from flare_components.ops.request_state import PARAMETERS, PROGRESS
from flare_components.ops.sampling import READS

OPS: Any = torch.ops.flare


def i32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def make_state(
    slots: int, vocab: int, *, stops: int = 3, biases: int = 4, **values: float
) -> dict[str, Tensor]:
    """Live slots with neutral parameters, temperature 1; `values` fill whole tensors."""
    extents = {"S": slots, "V": vocab, "K": stops, "B": biases}
    state = {
        name: torch.zeros([extents[dim] for dim in dims], dtype=dtype)
        for name, (dtype, dims) in {**PARAMETERS, **PROGRESS}.items()
    }
    defaults = {"temperature": 1, "top_p": 1, "repetition_penalty": 1, "max_tokens": 1 << 20}
    for name in ("stop_ids", "bias_ids", "logprobs_wanted", "pending"):
        defaults[name] = -1
    for name, value in {**defaults, **values}.items():
        state[name].fill_(value)
    return state


def sample(
    logits: Tensor, slots: Tensor, state: dict[str, Tensor], mask: Tensor | None = None
) -> tuple[Tensor, ...]:
    return OPS.sample(logits, slots, *(state[name] for name in READS[2:]), mask)


def commit(tokens: Tensor, slots: Tensor, state: dict[str, Tensor]) -> None:
    names = ("counter", "generated", "output_counts", "pending", "finished", "max_tokens", "stop_ids")
    OPS.commit_tokens(tokens, slots, *(state[name] for name in names))


def start(slot: int, state: dict[str, Tensor], prompt: list[int], *, epoch: int = 1, **values: Any) -> None:
    """Start a request with a padded prompt; `values` override neutral parameters."""
    uploaded = {name: state[name].new_zeros(state[name].shape[1:] or (1,)) for name in PARAMETERS}
    defaults: dict[str, Any] = {"temperature": 1, "top_p": 1, "repetition_penalty": 1, "max_tokens": 1 << 20}
    defaults |= {"stop_ids": [], "bias_ids": [], "logprobs_wanted": -1}
    for name, value in {**defaults, **values}.items():
        if isinstance(value, list):
            value = torch.tensor(value + [-1] * (uploaded[name].numel() - len(value)))
        uploaded[name].copy_(torch.as_tensor(value))
    OPS.start_request(
        i32(slot),
        i32(epoch),
        i32(*prompt, -1, -1, -1),
        i32(len(prompt)),
        *uploaded.values(),
        *(state[name] for name in (*PARAMETERS, *PROGRESS)),
    )


def snapshot(state: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}

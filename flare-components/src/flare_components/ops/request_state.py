"""Per-slot request state, and the operands of every operator that reads or writes it.

S request slots, L lanes of a program, V vocabulary, K stop tokens, B logit biases, G = ceil(V / 32),
R = 16 + C integers and C token places of a completion record, T alternatives in a record, A alternatives
from the sampler, N prompt places. Lane l works on slot `slots[l]`; -1 is a padding lane, which reads nothing
and writes nothing. All storage belongs to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

ALTERNATIVES = 20
"""Most alternatives a request may ask for per token (the OpenAI API's bound on `top_logprobs`)."""

NO_TOKEN = -1
"""Drawn for a lane that draws nothing: padding, or its slot has finished."""
INVALID_TOKEN = -2
"""Drawn for a lane whose logits are not finite, or admit no token at all."""

# Values of `finished`; 0 is a live slot.
STOP_TOKEN = 1
LENGTH = 2

_F32, _I32, _I64 = torch.float32, torch.int32, torch.int64

PARAMETERS: dict[str, tuple[torch.dtype, str]] = {
    "temperature": (_F32, "S"),
    "top_p": (_F32, "S"),  # 1 off
    "min_p": (_F32, "S"),  # 0 off
    "repetition_penalty": (_F32, "S"),  # 1 neutral
    "presence_penalty": (_F32, "S"),
    "frequency_penalty": (_F32, "S"),
    "top_k": (_I32, "S"),  # 0 off
    "min_tokens": (_I32, "S"),
    "max_tokens": (_I32, "S"),
    "logprobs_wanted": (_I32, "S"),  # -1 none, else the number of alternatives
    "seed": (_I64, "S"),  # bits of the unsigned Philox key
    "stop_ids": (_I32, "SK"),  # -1 behind the last
    "bias_ids": (_I32, "SB"),  # -1 behind the last
    "bias_values": (_F32, "SB"),
}
"""What a request brings: name -> (element type, dimensions)."""

PROGRESS: dict[str, tuple[torch.dtype, str]] = {
    "epoch": (_I32, "S"),  # which request of the slot this is
    "counter": (_I64, "S"),  # successful draws
    "generated": (_I32, "S"),  # tokens drawn for the request
    "finished": (_I32, "S"),  # 0 live, else STOP_TOKEN or LENGTH
    "pending": (_I32, "S"),  # token drawn and not yet consumed, -1 none
    "consumed": (_I32, "S"),  # tokens in the cache
    "prompt_counts": (_I32, "SV"),
    "output_counts": (_I32, "SV"),
}
"""Where a request stands."""

_LANES: dict[str, tuple[torch.dtype | None, str]] = {
    "logits": (None, "LV"),  # any floating type
    "slots": (_I32, "L"),
    "epochs": (_I32, "L"),
    "counts": (_I32, "L"),
    "tokens": (_I32, "L"),
    "grammar_mask": (_I32, "LG"),  # bit 1 admits a token, low bit first
    "prompt": (_I32, "N"),
    "prompt_length": (_I32, "L"),
    "output_length": (_I32, "L"),
    "logprobs": (_F32, "L"),
    "top_ids": (_I32, "LA"),
    "top_logprobs": (_F32, "LA"),
    "records": (_I32, "LR"),
    "record_logprobs": (_F32, "LC"),
    "record_top_ids": (_I32, "LCT"),
    "record_top_logprobs": (_F32, "LCT"),
}

# One request at a time: scalars are [1] like its lane, lists come without a slot dimension.
_UPLOADED = {
    f"new_{name}": (dtype, dims.removeprefix("S") or "L") for name, (dtype, dims) in PARAMETERS.items()
}

OPERANDS: dict[str, tuple[torch.dtype | None, str]] = {**PARAMETERS, **PROGRESS, **_LANES, **_UPLOADED}
"""Every operand by name; `new_*` are uploaded parameters."""


def arguments(names: Iterable[str], written: Iterable[str] = ()) -> str:
    """Schema text of the operands `names`; those in `written` are mutated in place."""
    alias = dict(zip(written, "abcdefghijklmnopqrstuvwxyz", strict=False))
    return ", ".join(
        f"Tensor({alias[name]}!) {name}" if name in alias else f"Tensor {name}" for name in names
    )


def check_operands(operator: str, names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, int]:
    """Compare types and shapes with `OPERANDS`; returns the extent of every dimension.

    Raises ValueError naming operator and operand: a program was composed wrongly.
    """
    extents: dict[str, int] = {}
    for name, tensor in zip(names, tensors, strict=True):
        dtype, dims = OPERANDS[name]
        if tensor.dtype != dtype if dtype is not None else not tensor.is_floating_point():
            raise ValueError(f"flare::{operator}: {name} is {tensor.dtype}, expected {dtype or 'floating'}")
        expected = [extents.setdefault(dim, size) for dim, size in zip(dims, tensor.shape, strict=False)]
        if tensor.dim() != len(dims) or expected != list(tensor.shape):
            wanted = ", ".join(f"{dim}={extents[dim]}" if dim in extents else dim for dim in dims)
            raise ValueError(f"flare::{operator}: {name} is {list(tensor.shape)}, expected [{wanted}]")
    return extents

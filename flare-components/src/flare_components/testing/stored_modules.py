"""A weight in a number format as the tensors that checkpoints store it in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flare_components.quant import csf, fp8_block, mxfp8, nvfp4

INPUT_RANGE = 8.0
"""The largest input that the written input scales are calibrated for."""


@dataclass(frozen=True)
class Choice:
    """How a weight is written: ModelOpt's algorithm NVFP4, W4A16_NVFP4, MXFP8 or FP8_BLOCK_SCALES, whether
    its block scales are compressed, the block of FP8, and a given global scale of NVFP4."""

    algorithm: str
    compressed: bool
    block: tuple[int, int]
    global_scale: Tensor | None = None


def modelopt(weight: Tensor, choice: Choice) -> dict[str, Tensor]:
    """Tensors of a module by name, as ModelOpt writes them."""
    if choice.algorithm == "MXFP8":
        stored = mxfp8.encode(weight)
        return {"weight": stored.codes, "weight_scale": stored.scales.view(torch.uint8)}
    if choice.algorithm == "FP8_BLOCK_SCALES":
        return fp8(weight, choice)
    packed = nvfp4.encode(weight, choice.global_scale)
    # Every tensor of a file has its own storage.
    tensors = {"weight": packed.codes, "weight_scale_2": packed.global_scale.clone()}
    if choice.compressed:
        streams = csf.encode(packed.scales)
        tensors["weight_scale.nvfp4_csf_fixed"] = streams.fixed
        tensors["weight_scale.nvfp4_csf_exceptions"] = streams.exceptions
    else:
        tensors["weight_scale"] = packed.scales
    if choice.algorithm == "NVFP4":
        tensors["input_scale"] = _input_scale()
    return tensors


def compressed_tensors(weight: Tensor, choice: Choice) -> dict[str, Tensor]:
    """The same by compressed-tensors, which stores global scales as their reciprocals. Raises ValueError for
    compressed scales, which it does not have."""
    if choice.compressed:
        raise ValueError("compressed-tensors has no compressed scales; write them as modelopt")
    if choice.algorithm == "FP8_BLOCK_SCALES":
        stored = fp8_block.encode(weight, choice.block)
        return {"weight": stored.codes, "weight_scale": stored.scales}
    tensors = modelopt(weight, choice)
    if choice.algorithm == "MXFP8":
        return tensors
    renamed = {
        "weight_packed": tensors["weight"],
        "weight_scale": tensors["weight_scale"],
        "weight_global_scale": 1 / tensors["weight_scale_2"].view(1),
    }
    if choice.algorithm == "NVFP4":
        renamed["input_global_scale"] = 1 / _input_scale().view(1)
    return renamed


def fp8(weight: Tensor, choice: Choice) -> dict[str, Tensor]:
    """Tensors of a module in FP8 blocks under the names of `quant_method` "fp8". Raises ValueError for
    another algorithm."""
    if choice.algorithm != "FP8_BLOCK_SCALES":
        raise ValueError(f"producer fp8 has no {choice.algorithm}")
    stored = fp8_block.encode(weight, choice.block)
    return {"weight": stored.codes, "weight_scale_inv": stored.scales}


def _input_scale() -> Tensor:
    return torch.tensor(INPUT_RANGE / (6 * 448))

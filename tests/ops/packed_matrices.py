"""Random matrices in every number format: operands of the operators, and what they stand for in FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flare_components.quant import csf, fp8_block, mxfp8, nvfp4

FORMATS = ("nvfp4", "mxfp8", "fp8_block")
BLOCK = (16, 32)
"""Rows and columns of an FP8 block here: small, so that there are several."""


@dataclass(frozen=True)
class PackedMatrix:
    """`operands` of the linear operator after x; `dense` [R, C] FP64; `rounded(x)` is what quantised inputs
    stand for, in FP64."""

    name: str
    operands: Callable[[Tensor | None, bool], tuple[Any, ...]]
    dense: Tensor
    rounded: Callable[[Tensor], Tensor]

    def linear(self, x: Tensor, bias: Tensor | None = None, *, quantize: bool = False) -> Tensor:
        """The operator's result."""
        operator = getattr(torch.ops.flare, f"{self.name}_linear")
        return operator(x, *self.operands(bias, quantize))


def packed(name: str, rows: int, columns: int, seed: int = 0) -> PackedMatrix:
    """A random matrix [rows, columns] in the format `name`."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator) * torch.randn(rows, 1, generator=generator).exp()
    if name == "nvfp4":
        return _nvfp4(values)
    if name == "mxfp8":
        stored = mxfp8.encode(values)
        return PackedMatrix(
            name,
            lambda bias, quantize: (stored.codes, stored.scales, bias, quantize),
            mxfp8.decode(stored).double(),
            lambda x: mxfp8.decode(mxfp8.encode(x)).double(),
        )
    blocks = fp8_block.encode(values, BLOCK)
    return PackedMatrix(
        name,
        lambda bias, quantize: (blocks.codes, blocks.scales, bias, *BLOCK, quantize),
        fp8_block.decode(blocks).double(),
        lambda x: fp8_block.decode(fp8_block.encode(x, (1, BLOCK[1]))).double(),
    )


def _nvfp4(values: Tensor) -> PackedMatrix:
    half = values.shape[0] // 2  # two stacked matrices, each with its own global scale
    parts = [nvfp4.encode(part) for part in (values[:half], values[half:])]
    codes, scales = torch.cat([part.codes for part in parts]), torch.cat([part.scales for part in parts])
    counts = torch.tensor([half, values.shape[0] - half])
    per_row = torch.stack([part.global_scale for part in parts]).repeat_interleave(counts)
    input_scale = torch.tensor([4 / (6 * 448)])
    return PackedMatrix(
        "nvfp4",
        lambda bias, quantize: (codes, scales, per_row, input_scale if quantize else None, bias),
        torch.cat(
            [nvfp4.decode_unscaled(part.codes, part.scales).double() * part.global_scale for part in parts]
        ),
        lambda x: nvfp4.decode(nvfp4.encode(x, input_scale)).double(),
    )


@dataclass(frozen=True)
class PackedExperts:
    """`operands` of the experts operator after the routing; `gate_up` [E, 2 F, H] and `down` [E, H, F] FP64;
    `rounded(x, expert, down)` what quantised inputs of a matrix stand for."""

    name: str
    operands: Callable[[bool], tuple[Any, ...]]
    gate_up: Tensor
    down: Tensor
    rounded: Callable[[Tensor, int, bool], Tensor]

    def run(
        self, x: Tensor, weights: Tensor, experts: Tensor, *, quantize: bool = False, **limit: float
    ) -> Tensor:
        """The operator's result."""
        operator = getattr(torch.ops.flare, f"{self.name}_experts")
        return operator(x, weights, experts, *self.operands(quantize), **limit)


def packed_experts(name: str, number: int, hidden: int, inner: int, seed: int = 0) -> PackedExperts:
    """Random experts in the format `name`: one of FORMATS, or "nvfp4_csf"."""
    generator = torch.Generator().manual_seed(seed)
    gate_up = torch.randn(number, 2 * inner, hidden, generator=generator) * 0.2
    down = torch.randn(number, hidden, inner, generator=generator) * 0.2
    if name.startswith("nvfp4"):
        return _nvfp4_experts(name, gate_up, down)
    if name == "mxfp8":
        first, second = mxfp8.encode(gate_up), mxfp8.encode(down)
        return PackedExperts(
            name,
            lambda quantize: (first.codes, first.scales, second.codes, second.scales, quantize),
            mxfp8.decode(first).double(),
            mxfp8.decode(second).double(),
            lambda x, expert, down: mxfp8.decode(mxfp8.encode(x)).double(),
        )
    one, two = fp8_block.encode(gate_up, BLOCK), fp8_block.encode(down, BLOCK)
    return PackedExperts(
        name,
        lambda quantize: (one.codes, one.scales, two.codes, two.scales, *BLOCK, quantize),
        fp8_block.decode(one).double(),
        fp8_block.decode(two).double(),
        lambda x, expert, down: fp8_block.decode(fp8_block.encode(x, (1, BLOCK[1]))).double(),
    )


def _nvfp4_experts(name: str, gate_up: Tensor, down: Tensor) -> PackedExperts:
    number, twice, _ = gate_up.shape
    gate_up_global = torch.rand(number, 2) * 0.001 + 0.0005
    down_global = torch.rand(number) * 0.001 + 0.0005
    wide = gate_up_global.repeat_interleave(twice // 2, 1).unsqueeze(2)
    first, second = nvfp4.encode(gate_up, wide), nvfp4.encode(down, down_global.view(-1, 1, 1))
    inputs = torch.rand(number) * 0.001 + 0.001, torch.rand(number) * 0.001 + 0.001

    def scales(stored: nvfp4.Nvfp4) -> tuple[Tensor, ...]:
        return (stored.scales,) if name == "nvfp4" else compressed(stored.scales)

    def operands(quantize: bool) -> tuple[Any, ...]:
        one, two = inputs if quantize else (None, None)
        return (
            *(first.codes, *scales(first), gate_up_global, one),
            *(second.codes, *scales(second), down_global, two),
        )

    return PackedExperts(
        name,
        operands,
        nvfp4.decode_unscaled(first.codes, first.scales).double() * wide,
        nvfp4.decode_unscaled(second.codes, second.scales).double() * down_global.view(-1, 1, 1),
        lambda x, expert, down: nvfp4.decode(nvfp4.encode(x, inputs[down][expert])).double(),
    )


def compressed(scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """fixed, exceptions and starts of scales E4M3 [E, R, C], slab by slab."""
    matrices = [csf.encode(matrix) for matrix in scales]
    starts = [0]
    elements = csf.SLAB * scales.shape[2]
    for matrix in matrices:
        slab = (matrix.exceptions.long() & 0xFFFFFF) // elements
        for index in range(scales.shape[1] // csf.SLAB):
            starts.append(starts[-1] + int((slab == index).sum()))
    return (
        torch.stack([matrix.fixed for matrix in matrices]),
        torch.cat([matrix.exceptions for matrix in matrices]),
        torch.tensor(starts, dtype=torch.int32),
    )

"""Linear layers whose weight stays in the number format it is stored in.

`linear_for` builds the layer for a format; `flare.prepare.linear_rules` fills it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare.prepare import NumberFormat, WeightFormat
from flare_components.quant import mxfp8, nvfp4


def linear_for(
    found: WeightFormat | None, inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool = False
) -> nn.Module:
    """A linear layer for x [N, inputs] of type `dtype` -> [N, outputs], without weights (on the meta device).

    found: the format of its weight; None for a plain weight of type `dtype`, which gives `torch.nn.Linear`.
    """
    if found is None:
        return nn.Linear(inputs, outputs, bias=bias, device="meta", dtype=dtype)
    if found.number is NumberFormat.NVFP4:
        return Nvfp4Linear(inputs, outputs, dtype, bias=bias, quantized_input=found.quantized_input)
    if found.number is NumberFormat.MXFP8:
        return Mxfp8Linear(inputs, outputs, dtype, bias=bias, quantized_input=found.quantized_input)
    return Fp8BlockLinear(
        inputs, outputs, dtype, bias=bias, quantized_input=found.quantized_input, block=found.block
    )


def operand(dtype: torch.dtype, *shape: int) -> nn.Parameter:
    """A weight to be filled in."""
    return nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"), requires_grad=False)


class Nvfp4Linear(nn.Module):
    """`flare::nvfp4_linear`."""

    def __init__(
        self, inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool, quantized_input: bool
    ) -> None:
        super().__init__()
        self.codes = operand(torch.uint8, outputs, inputs // 2)
        self.scales = operand(torch.float8_e4m3fn, outputs, -(-inputs // nvfp4.BLOCK))
        self.global_scale = operand(torch.float32, outputs)
        self.input_scale = operand(torch.float32, 1) if quantized_input else None
        self.bias = operand(dtype, outputs) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x [N, inputs] -> [N, outputs]."""
        product: Tensor = torch.ops.flare.nvfp4_linear(
            x, self.codes, self.scales, self.global_scale, self.input_scale, self.bias
        )
        return product


class Mxfp8Linear(nn.Module):
    """`flare::mxfp8_linear`."""

    def __init__(
        self, inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool, quantized_input: bool
    ) -> None:
        super().__init__()
        self.codes = operand(torch.float8_e4m3fn, outputs, inputs)
        self.scales = operand(torch.float8_e8m0fnu, outputs, -(-inputs // mxfp8.BLOCK))
        self.bias = operand(dtype, outputs) if bias else None
        self.quantized_input = quantized_input

    def forward(self, x: Tensor) -> Tensor:
        """x [N, inputs] -> [N, outputs]."""
        product: Tensor = torch.ops.flare.mxfp8_linear(
            x, self.codes, self.scales, self.bias, self.quantized_input
        )
        return product


class Fp8BlockLinear(nn.Module):
    """`flare::fp8_block_linear`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        dtype: torch.dtype,
        *,
        bias: bool,
        quantized_input: bool,
        block: tuple[int, int],
    ) -> None:
        super().__init__()
        self.codes = operand(torch.float8_e4m3fn, outputs, inputs)
        self.scales = operand(torch.float32, -(-outputs // block[0]), -(-inputs // block[1]))
        self.bias = operand(dtype, outputs) if bias else None
        self.block = block
        self.quantized_input = quantized_input

    def forward(self, x: Tensor) -> Tensor:
        """x [N, inputs] -> [N, outputs]."""
        product: Tensor = torch.ops.flare.fp8_block_linear(
            x, self.codes, self.scales, self.bias, *self.block, self.quantized_input
        )
        return product

"""Linear layers whose weight stays in the number format it is stored in.

`linear_for` builds the layer for a format, `keep_formats` all of a model; `flare.prepare.linear_rules` fills
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from flare.prepare import NumberFormat, WeightFormat, WeightFormats
from flare_components.modules.parameters import empty_parameter
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


def keep_formats(root: nn.Module, formats: WeightFormats, sources: Mapping[str, Sequence[str]]) -> None:
    """Put in the place of linear layers of `root` those for the formats their weights are stored in.

    sources: for the qualified name of each layer the checkpoint's modules that its weight is stacked of, the
    same that `flare.prepare.linear_rules` takes. Layers of plain weights stay. Raises CheckpointError when
    the modules of one layer have different formats.
    """
    for target, modules in sources.items():
        found = formats.shared(modules)
        if found is None:
            continue
        owner, _, name = target.rpartition(".")
        parent = root.get_submodule(owner)
        plain = parent.get_submodule(name)
        assert isinstance(plain, nn.Linear), f"{target} is no linear layer"
        made = linear_for(
            found, plain.in_features, plain.out_features, plain.weight.dtype, bias=plain.bias is not None
        )
        setattr(parent, name, made)


class Nvfp4Linear(nn.Module):
    """`flare::nvfp4_linear`."""

    def __init__(
        self, inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool, quantized_input: bool
    ) -> None:
        super().__init__()
        self.codes = empty_parameter(outputs, inputs // 2, dtype=torch.uint8)
        self.scales = empty_parameter(outputs, -(-inputs // nvfp4.BLOCK), dtype=torch.float8_e4m3fn)
        self.global_scale = empty_parameter(outputs, dtype=torch.float32)
        self.input_scale = empty_parameter(1, dtype=torch.float32) if quantized_input else None
        self.bias = empty_parameter(outputs, dtype=dtype) if bias else None

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
        self.codes = empty_parameter(outputs, inputs, dtype=torch.float8_e4m3fn)
        self.scales = empty_parameter(outputs, -(-inputs // mxfp8.BLOCK), dtype=torch.float8_e8m0fnu)
        self.bias = empty_parameter(outputs, dtype=dtype) if bias else None
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
        self.codes = empty_parameter(outputs, inputs, dtype=torch.float8_e4m3fn)
        self.scales = empty_parameter(-(-outputs // block[0]), -(-inputs // block[1]), dtype=torch.float32)
        self.bias = empty_parameter(outputs, dtype=dtype) if bias else None
        self.block = block
        self.quantized_input = quantized_input

    def forward(self, x: Tensor) -> Tensor:
        """x [N, inputs] -> [N, outputs]."""
        product: Tensor = torch.ops.flare.fp8_block_linear(
            x, self.codes, self.scales, self.bias, *self.block, self.quantized_input
        )
        return product

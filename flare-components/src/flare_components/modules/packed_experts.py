"""Routed experts whose weights stay in the number format they are stored in.

`experts_for` builds the module for a format; `flare.prepare.expert_rules` fills it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare.prepare import CheckpointError, NumberFormat, WeightFormat, WeightFormats
from flare.prepare import expert_modules as names
from flare_components.modules.expert_mixture import RoutedExperts
from flare_components.modules.parameters import empty_parameter
from flare_components.quant import csf, mxfp8, nvfp4


class PackedExperts(nn.Module):
    """`number` gated feed-forward networks of `hidden` inputs and `inner` values in a format, on the meta
    device.

    found: the format of all matrices. exceptions: how many exceptions compressed scales have, of gate and up,
    and of down. limit: as in `flare::silu_and_mul`.
    """

    def __init__(
        self,
        found: WeightFormat,
        number: int,
        hidden: int,
        inner: int,
        exceptions: tuple[int, int] = (0, 0),
        *,
        limit: float | None = None,
    ) -> None:
        super().__init__()
        self.found, self.limit = found, limit
        for name, rows, columns, count in (
            ("gate_up", 2 * inner, hidden, exceptions[0]),
            ("down", hidden, inner, exceptions[1]),
        ):
            for key, value in _operands(found, number, rows, columns, count, name).items():
                self.register_parameter(f"{name}_{key}", value)

    def forward(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """x [N, H]; weights f32[N, K]; experts i32[N, K], -1 for none -> the weighted sum [N, H]."""
        operator, keys = _OPERATORS[self.found.number, self.found.compressed]
        operands = [getattr(self, f"{name}_{key}", None) for name in ("gate_up", "down") for key in keys]
        call = getattr(torch.ops.flare, operator)
        result: Tensor = call(x, weights, experts, *operands, *self._settings(), self.limit)
        return result

    def _settings(self) -> tuple[int | bool, ...]:
        if self.found.number is NumberFormat.NVFP4:
            return ()
        block = self.found.block if self.found.number is NumberFormat.FP8_BLOCK else ()
        return (*block, self.found.quantized_input)


_NVFP4 = ("global", "input")
_OPERATORS = {
    (NumberFormat.NVFP4, False): ("nvfp4_experts", ("codes", "scales", *_NVFP4)),
    (NumberFormat.NVFP4, True): ("nvfp4_csf_experts", ("codes", "fixed", "exceptions", "starts", *_NVFP4)),
    (NumberFormat.MXFP8, False): ("mxfp8_experts", ("codes", "scales")),
    (NumberFormat.FP8_BLOCK, False): ("fp8_block_experts", ("codes", "scales")),
}


def experts_for(
    formats: WeightFormats,
    experts: str,
    number: int,
    hidden: int,
    inner: int,
    dtype: torch.dtype,
    *,
    gate_up: tuple[str, str] = ("gate_proj", "up_proj"),
    down: str = "down_proj",
    limit: float | None = None,
) -> PackedExperts | RoutedExperts:
    """The module for the experts that a checkpoint calls `experts`, as in `flare.prepare.expert_rules`; plain
    weights are of type `dtype`. limit: as in `flare::silu_and_mul`. Raises CheckpointError when gate and up
    have another format than down."""
    if formats.has(f"{experts}.gate_up_proj"):
        return RoutedExperts(number, hidden, inner, dtype, limit=limit)
    matrices = names(experts, number, gate_up), names(experts, number, (down,))
    first, second = (formats.shared(modules) for modules in matrices)
    if first != second:
        raise CheckpointError(f"{experts}: gate, up and down are stored in different formats", field=experts)
    if first is None:
        return RoutedExperts(number, hidden, inner, dtype, limit=limit)
    exceptions = formats.exceptions(matrices[0]), formats.exceptions(matrices[1])
    return PackedExperts(first, number, hidden, inner, exceptions, limit=limit)


def _operands(
    found: WeightFormat, number: int, rows: int, columns: int, exceptions: int, name: str
) -> dict[str, nn.Parameter]:
    if found.number is NumberFormat.MXFP8:
        return {
            "codes": empty_parameter(number, rows, columns, dtype=torch.float8_e4m3fn),
            "scales": empty_parameter(number, rows, -(-columns // mxfp8.BLOCK), dtype=torch.float8_e8m0fnu),
        }
    if found.number is NumberFormat.FP8_BLOCK:
        grid = -(-rows // found.block[0]), -(-columns // found.block[1])
        return {
            "codes": empty_parameter(number, rows, columns, dtype=torch.float8_e4m3fn),
            "scales": empty_parameter(number, *grid, dtype=torch.float32),
        }
    made = {"codes": empty_parameter(number, rows, columns // 2, dtype=torch.uint8)}
    blocks = -(-columns // nvfp4.BLOCK)
    if found.compressed:
        slabs = rows // csf.SLAB
        made["fixed"] = empty_parameter(number, slabs, csf.SLAB * (1 + blocks // 2), dtype=torch.uint8)
        made["exceptions"] = empty_parameter(exceptions, dtype=torch.uint32)
        made["starts"] = empty_parameter(number * slabs + 1, dtype=torch.int32)
    else:
        made["scales"] = empty_parameter(number, rows, blocks, dtype=torch.float8_e4m3fn)
    pair = (number, 2) if name == "gate_up" else (number,)
    made["global"] = empty_parameter(*pair, dtype=torch.float32)
    if found.quantized_input:
        made["input"] = empty_parameter(number, dtype=torch.float32)
    return made

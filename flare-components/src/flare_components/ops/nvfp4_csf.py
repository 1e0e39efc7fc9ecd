"""`flare::nvfp4_csf_experts`: routed experts with NVFP4 matrices whose block scales stay compressed.

The scales of a stack of matrices [E, R, C/16] are two streams (`flare_components.quant.csf`): `fixed` U8 [E,
R/16, 16 * (1 + C/32)] and `exceptions` U32 [n], those of one matrix after the other, each with positions in
its own matrix. `starts` I32 [E * R/16 + 1] says where the exceptions of every slab of 16 rows begin.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.activation import check_limit
from flare_components.ops.expert_sum import sum_experts
from flare_components.ops.nvfp4 import activate, check_experts, quantized_input
from flare_components.ops.packed_checks import check_operand
from flare_components.ops.packed_product import finish, packed_product
from flare_components.ops.schema import define
from flare_components.quant import csf, nvfp4
from flare_components.quant.csf_exceptions import patch, split_words


def nvfp4_csf_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_fixed: Tensor,
    gate_up_exceptions: Tensor,
    gate_up_starts: Tensor,
    gate_up_global: Tensor,
    gate_up_input: Tensor | None,
    down_codes: Tensor,
    down_fixed: Tensor,
    down_exceptions: Tensor,
    down_starts: Tensor,
    down_global: Tensor,
    down_input: Tensor | None,
    limit: float | None = None,
) -> Tensor:
    """`flare::nvfp4_experts` with gate_up_scales and down_scales as fixed, exceptions and starts; 2 F and H
    are multiples of 16. Scales are expanded for routed experts only, a tile at a time."""

    def network(expert: int, rows: Tensor) -> Tensor:
        scale = None if gate_up_input is None else gate_up_input[expert]
        gate_up = _product(
            rows, expert, gate_up_codes, gate_up_fixed, gate_up_exceptions, gate_up_starts, scale
        )
        inner = activate(gate_up, gate_up_global[expert], x.dtype, limit)
        scale = None if down_input is None else down_input[expert]
        down = _product(inner, expert, down_codes, down_fixed, down_exceptions, down_starts, scale)
        return finish(down.mul_(down_global[expert]), None, x.dtype)

    return sum_experts(x, weights, experts, network)


def _product(
    x: Tensor,
    expert: int,
    codes: Tensor,
    fixed: Tensor,
    exceptions: Tensor,
    starts: Tensor,
    input_scale: Tensor | None,
) -> Tensor:
    slabs, columns = fixed.shape[1], (fixed.shape[2] // csf.SLAB - 1) * 2

    def decode(start: int, stop: int) -> Tensor:
        first, last = start // csf.SLAB, stop // csf.SLAB
        scales = csf.decode_fixed(fixed[expert, first:last])
        begin, end = starts[[expert * slabs + first, expert * slabs + last]].tolist()
        positions, content = split_words(exceptions[begin:end])
        patch(scales, positions - start * columns, content)
        return nvfp4.decode_unscaled(codes[expert, start:stop], scales.view(torch.float8_e4m3fn))

    return packed_product(quantized_input(x, input_scale), codes.shape[1], decode, step=csf.SLAB)


def _fake(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_fixed: Tensor,
    gate_up_exceptions: Tensor,
    gate_up_starts: Tensor,
    gate_up_global: Tensor,
    gate_up_input: Tensor | None,
    down_codes: Tensor,
    down_fixed: Tensor,
    down_exceptions: Tensor,
    down_starts: Tensor,
    down_global: Tensor,
    down_input: Tensor | None,
    limit: float | None = None,
) -> Tensor:
    check_limit(limit)
    check_experts(
        x, weights, experts, gate_up_codes, gate_up_global, gate_up_input, down_codes, down_global, down_input
    )
    _check_streams("gate_up", gate_up_codes, gate_up_fixed, gate_up_exceptions, gate_up_starts)
    _check_streams("down", down_codes, down_fixed, down_exceptions, down_starts)
    return x.new_empty(x.shape)


def _check_streams(name: str, codes: Tensor, fixed: Tensor, exceptions: Tensor, starts: Tensor) -> None:
    number, rows, pairs = codes.shape
    torch._check(
        rows % csf.SLAB == 0 and pairs % nvfp4.BLOCK == 0,
        lambda: f"{name}: compressed scales take rows in 16 and columns in 32, not {[rows, 2 * pairs]}",
    )
    slabs = rows // csf.SLAB
    check_operand(f"{name}_fixed", fixed, torch.uint8, (number, slabs, csf.SLAB * (1 + pairs // nvfp4.BLOCK)))
    check_operand(f"{name}_exceptions", exceptions, torch.uint32, (exceptions.shape[0],))
    check_operand(f"{name}_starts", starts, torch.int32, (number * slabs + 1,))


define(
    "nvfp4_csf_experts(Tensor x, Tensor weights, Tensor experts, "
    "Tensor gate_up_codes, Tensor gate_up_fixed, Tensor gate_up_exceptions, Tensor gate_up_starts, "
    "Tensor gate_up_global, Tensor? gate_up_input, "
    "Tensor down_codes, Tensor down_fixed, Tensor down_exceptions, Tensor down_starts, "
    "Tensor down_global, Tensor? down_input, float? limit=None) -> Tensor",
    cpu=nvfp4_csf_experts,
    fake=_fake,
)

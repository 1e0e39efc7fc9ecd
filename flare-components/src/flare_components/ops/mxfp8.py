"""`flare::mxfp8_linear` and `flare::mxfp8_experts`: products with MXFP8 matrices.

A matrix [R, C] is codes E4M3 [R, C] and scales E8M0 [R, ceil(C/32)] (`flare_components.quant.mxfp8`). With
`quantize_input` inputs are rounded to MXFP8 too, as such checkpoints are calibrated; else they keep their
type.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.activation import check_limit, silu_and_mul
from flare_components.ops.expert_sum import check_routing, sum_experts
from flare_components.ops.packed_checks import check_linear, check_operand
from flare_components.ops.packed_product import finish, packed_product
from flare_components.ops.schema import define
from flare_components.quant import mxfp8
from flare_components.quant.mxfp8 import Mxfp8


def mxfp8_linear(
    x: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, quantize_input: bool
) -> Tensor:
    """x [N, C]; codes E4M3[R, C]; scales E8M0[R, ceil(C/32)]; bias [R] or None -> [N, R]."""
    return finish(_product(x, codes, scales, quantize_input), bias, x.dtype)


def mxfp8_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_scales: Tensor,
    down_codes: Tensor,
    down_scales: Tensor,
    quantize_input: bool,
    limit: float | None = None,
) -> Tensor:
    """`flare::routed_experts` with MXFP8 matrices.

    x [N, H]; weights f32[N, K]; experts i32[N, K], -1 for none; gate_up_codes E4M3[E, 2 F, H] with gate rows
    first, gate_up_scales E8M0[E, 2 F, ceil(H/32)]; down_codes E4M3[E, H, F], down_scales E8M0[E, H,
    ceil(F/32)]; limit as there. -> [N, H].
    """

    def network(expert: int, rows: Tensor) -> Tensor:
        gate_up = _product(rows, gate_up_codes[expert], gate_up_scales[expert], quantize_input)
        inner = silu_and_mul(gate_up.to(x.dtype), limit)
        return _product(inner, down_codes[expert], down_scales[expert], quantize_input).to(x.dtype)

    return sum_experts(x, weights, experts, network)


def _product(x: Tensor, codes: Tensor, scales: Tensor, quantize_input: bool) -> Tensor:
    def decode(start: int, stop: int) -> Tensor:
        return mxfp8.decode(Mxfp8(codes[start:stop], scales[start:stop]))

    inputs = mxfp8.decode(mxfp8.encode(x)) if quantize_input else x
    return packed_product(inputs, codes.shape[0], decode)


def _check_matrix(name: str, codes: Tensor, scales: Tensor, shape: tuple[int, ...]) -> None:
    *outer, columns = shape
    check_operand(f"{name}codes", codes, torch.float8_e4m3fn, shape)
    check_operand(f"{name}scales", scales, torch.float8_e8m0fnu, (*outer, -(-columns // mxfp8.BLOCK)))


def _fake_linear(
    x: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, quantize_input: bool
) -> Tensor:
    rows, columns = codes.shape
    _check_matrix("", codes, scales, (rows, columns))
    return check_linear(x, columns, rows, bias)


def _fake_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_scales: Tensor,
    down_codes: Tensor,
    down_scales: Tensor,
    quantize_input: bool,
    limit: float | None = None,
) -> Tensor:
    check_routing(x, weights, experts)
    check_limit(limit)
    number, twice, hidden = gate_up_codes.shape[0], gate_up_codes.shape[1], x.shape[1]
    torch._check(twice % 2 == 0, lambda: "gate_up_codes are [E, 2 F, H]")
    _check_matrix("gate_up_", gate_up_codes, gate_up_scales, (number, twice, hidden))
    _check_matrix("down_", down_codes, down_scales, (number, hidden, twice // 2))
    return x.new_empty(x.shape)


define(
    "mxfp8_linear(Tensor x, Tensor codes, Tensor scales, Tensor? bias, bool quantize_input) -> Tensor",
    cpu=mxfp8_linear,
    fake=_fake_linear,
)
define(
    "mxfp8_experts(Tensor x, Tensor weights, Tensor experts, Tensor gate_up_codes, Tensor gate_up_scales, "
    "Tensor down_codes, Tensor down_scales, bool quantize_input, float? limit=None) -> Tensor",
    cpu=mxfp8_experts,
    fake=_fake_experts,
)

"""`flare::nvfp4_linear`, `flare::nvfp4_experts`, `flare::nvfp4_rows`: products with NVFP4 matrices.

A matrix [R, C] is codes U8 [R, C/2] and scales E4M3 [R, ceil(C/16)] (`flare_components.quant.nvfp4`), and
FP32 global scales per row or per matrix. An `input_scale` is the global scale the checkpoint was calibrated
with for its inputs: where it is given, inputs are rounded to NVFP4 with it; else they keep their type.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.activation import check_limit, silu_and_mul
from flare_components.ops.expert_sum import check_routing, sum_experts
from flare_components.ops.packed_checks import check_linear, check_operand
from flare_components.ops.packed_product import finish, packed_product
from flare_components.ops.schema import define
from flare_components.quant import nvfp4


def nvfp4_linear(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    input_scale: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """x [N, C]; codes U8[R, C/2]; scales E4M3[R, ceil(C/16)]; global_scale f32[R], one per row, so that
    stacked matrices keep their own; input_scale f32[1] or None; bias [R] or None -> [N, R]."""
    product = _product(x, codes, scales, input_scale)
    return finish(product.mul_(global_scale), bias, x.dtype)


def nvfp4_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_scales: Tensor,
    gate_up_global: Tensor,
    gate_up_input: Tensor | None,
    down_codes: Tensor,
    down_scales: Tensor,
    down_global: Tensor,
    down_input: Tensor | None,
    limit: float | None = None,
) -> Tensor:
    """`flare::routed_experts` with NVFP4 matrices.

    x [N, H]; weights f32[N, K]; experts i32[N, K], -1 for none; gate_up_codes U8[E, 2 F, H/2] with gate rows
    first, gate_up_scales E4M3[E, 2 F, ceil(H/16)], gate_up_global f32[E, 2] (gate, up), gate_up_input f32[E]
    or None; down_codes U8[E, H, F/2], down_scales E4M3[E, H, ceil(F/16)], down_global f32[E], down_input
    f32[E] or None; limit as there. -> [N, H].
    """

    def network(expert: int, rows: Tensor) -> Tensor:
        gate_up = _product(rows, gate_up_codes[expert], gate_up_scales[expert], _at(gate_up_input, expert))
        inner = activate(gate_up, gate_up_global[expert], x.dtype, limit)
        down = _product(inner, down_codes[expert], down_scales[expert], _at(down_input, expert))
        return finish(down.mul_(down_global[expert]), None, x.dtype)

    return sum_experts(x, weights, experts, network)


def nvfp4_rows(rows: Tensor, global_scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of a table: rows U8[N, C/2 + C/16], each its codes and then its scales; global_scale f32[1] -> [N,
    C] of `dtype`. C is a multiple of 16."""
    codes, scales = rows.split(_parts(rows.shape[1]), 1)
    return nvfp4.decode_unscaled(codes, scales.view(torch.float8_e4m3fn)).mul_(global_scale).to(dtype)


def _parts(row_bytes: int) -> list[int]:
    """Bytes of codes and of scales in a row: eight to one."""
    return [row_bytes // 9 * 8, row_bytes // 9]


def activate(gate_up: Tensor, global_scale: Tensor, dtype: torch.dtype, limit: float | None) -> Tensor:
    """FP32 products [N, 2 F] of gate and up, each times its global scale f32[2] -> `silu(gate) * up` [N,
    F], with the limit of `flare::silu_and_mul`."""
    scaled = gate_up.unflatten(1, (2, -1)).mul_(global_scale.unsqueeze(1)).flatten(1)
    return silu_and_mul(scaled.to(dtype), limit)


def quantized_input(x: Tensor, input_scale: Tensor | None) -> Tensor:
    """What the codes of x [N, C] stand for, in FP32; x itself without a scale."""
    return x if input_scale is None else nvfp4.decode(nvfp4.encode(x, input_scale))


def _product(x: Tensor, codes: Tensor, scales: Tensor, input_scale: Tensor | None) -> Tensor:
    def decode(start: int, stop: int) -> Tensor:
        return nvfp4.decode_unscaled(codes[start:stop], scales[start:stop])

    return packed_product(quantized_input(x, input_scale), codes.shape[0], decode)


def _at(scales: Tensor | None, expert: int) -> Tensor | None:
    return None if scales is None else scales[expert]


def _check_matrix(name: str, codes: Tensor, scales: Tensor, shape: tuple[int, ...]) -> None:
    *outer, columns = shape
    check_operand(f"{name}codes", codes, torch.uint8, (*outer, columns // 2))
    check_operand(f"{name}scales", scales, torch.float8_e4m3fn, (*outer, -(-columns // nvfp4.BLOCK)))


def _fake_linear(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    input_scale: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    rows, columns = codes.shape[0], codes.shape[1] * 2
    _check_matrix("", codes, scales, (rows, columns))
    check_operand("global_scale", global_scale, torch.float32, (rows,))
    if input_scale is not None:
        check_operand("input_scale", input_scale, torch.float32, (1,))
    return check_linear(x, columns, rows, bias)


def _fake_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_scales: Tensor,
    gate_up_global: Tensor,
    gate_up_input: Tensor | None,
    down_codes: Tensor,
    down_scales: Tensor,
    down_global: Tensor,
    down_input: Tensor | None,
    limit: float | None = None,
) -> Tensor:
    check_limit(limit)
    check_experts(
        x, weights, experts, gate_up_codes, gate_up_global, gate_up_input, down_codes, down_global, down_input
    )
    number, twice, hidden = gate_up_codes.shape[0], gate_up_codes.shape[1], x.shape[1]
    _check_matrix("gate_up_", gate_up_codes, gate_up_scales, (number, twice, hidden))
    _check_matrix("down_", down_codes, down_scales, (number, hidden, twice // 2))
    return x.new_empty(x.shape)


def check_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_global: Tensor,
    gate_up_input: Tensor | None,
    down_codes: Tensor,
    down_global: Tensor,
    down_input: Tensor | None,
) -> None:
    """For fake kernels: everything about NVFP4 experts but their block scales."""
    check_routing(x, weights, experts)
    number, twice, hidden = gate_up_codes.shape[0], gate_up_codes.shape[1], x.shape[1]
    torch._check(twice % 2 == 0, lambda: "gate_up_codes are [E, 2 F, H/2]")
    check_operand("gate_up_codes", gate_up_codes, torch.uint8, (number, twice, hidden // 2))
    check_operand("down_codes", down_codes, torch.uint8, (number, hidden, twice // 4))
    check_operand("gate_up_global", gate_up_global, torch.float32, (number, 2))
    check_operand("down_global", down_global, torch.float32, (number,))
    for name, scale in (("gate_up_input", gate_up_input), ("down_input", down_input)):
        if scale is not None:
            check_operand(name, scale, torch.float32, (number,))


def _fake_rows(rows: Tensor, global_scale: Tensor, dtype: torch.dtype) -> Tensor:
    torch._check(
        rows.dim() == 2 and rows.dtype == torch.uint8 and rows.shape[1] % 9 == 0,
        lambda: "rows are U8 [N, C/2 + C/16]",
    )
    check_operand("global_scale", global_scale, torch.float32, (1,))
    return rows.new_empty((rows.shape[0], 2 * _parts(rows.shape[1])[0]), dtype=dtype)


define(
    "nvfp4_linear(Tensor x, Tensor codes, Tensor scales, Tensor global_scale, Tensor? input_scale, "
    "Tensor? bias) -> Tensor",
    cpu=nvfp4_linear,
    fake=_fake_linear,
)
define(
    "nvfp4_experts(Tensor x, Tensor weights, Tensor experts, "
    "Tensor gate_up_codes, Tensor gate_up_scales, Tensor gate_up_global, Tensor? gate_up_input, "
    "Tensor down_codes, Tensor down_scales, Tensor down_global, Tensor? down_input, "
    "float? limit=None) -> Tensor",
    cpu=nvfp4_experts,
    fake=_fake_experts,
)
define(
    "nvfp4_rows(Tensor rows, Tensor global_scale, ScalarType dtype) -> Tensor",
    cpu=nvfp4_rows,
    fake=_fake_rows,
)

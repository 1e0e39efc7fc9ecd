"""`flare::fp8_block_linear` and `flare::fp8_block_experts`: products with FP8 matrices scaled in blocks.

A matrix [R, C] is codes E4M3 [R, C] and FP32 scales [ceil(R/block_rows), ceil(C/block_columns)]
(`flare_components.quant.fp8_block`). With `quantize_input` inputs are rounded to FP8 with one scale for every
`block_columns` of a row, as such checkpoints are made for; else they keep their type. Matrices may be stacked
by rows where all but the last have a multiple of `block_rows`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.activation import check_limit, silu_and_mul
from flare_components.ops.expert_sum import check_routing, sum_experts
from flare_components.ops.packed_checks import check_linear, check_operand
from flare_components.ops.packed_product import finish, packed_product
from flare_components.ops.schema import define
from flare_components.quant import fp8_block
from flare_components.quant.fp8_block import Fp8Block


def fp8_block_linear(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    block_rows: int,
    block_columns: int,
    quantize_input: bool,
) -> Tensor:
    """x [N, C]; codes E4M3[R, C]; scales f32[ceil(R/block_rows), ceil(C/block_columns)]; bias [R] or None
    -> [N, R]."""
    return finish(_product(x, codes, scales, (block_rows, block_columns), quantize_input), bias, x.dtype)


def fp8_block_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_scales: Tensor,
    down_codes: Tensor,
    down_scales: Tensor,
    block_rows: int,
    block_columns: int,
    quantize_input: bool,
    limit: float | None = None,
) -> Tensor:
    """`flare::routed_experts` with FP8 matrices.

    x [N, H]; weights f32[N, K]; experts i32[N, K], -1 for none; gate_up_codes E4M3[E, 2 F, H] with gate rows
    first, F a multiple of block_rows, gate_up_scales f32[E, 2 F/block_rows, ceil(H/block_columns)];
    down_codes E4M3[E, H, F], down_scales f32[E, ceil(H/block_rows), ceil(F/block_columns)];
    limit as there. -> [N, H].
    """
    block = block_rows, block_columns

    def network(expert: int, rows: Tensor) -> Tensor:
        gate_up = _product(rows, gate_up_codes[expert], gate_up_scales[expert], block, quantize_input)
        inner = silu_and_mul(gate_up.to(x.dtype), limit)
        return _product(inner, down_codes[expert], down_scales[expert], block, quantize_input).to(x.dtype)

    return sum_experts(x, weights, experts, network)


def _product(
    x: Tensor, codes: Tensor, scales: Tensor, block: tuple[int, int], quantize_input: bool
) -> Tensor:
    def decode(start: int, stop: int) -> Tensor:
        tile = scales[start // block[0] : -(-stop // block[0])]
        return fp8_block.decode(Fp8Block(codes[start:stop], tile, block))

    inputs = fp8_block.decode(fp8_block.encode(x, (1, block[1]))) if quantize_input else x
    return packed_product(inputs, codes.shape[0], decode, step=block[0])


def _check_matrix(
    name: str, codes: Tensor, scales: Tensor, shape: tuple[int, ...], block: tuple[int, int]
) -> None:
    *outer, rows, columns = shape
    check_operand(f"{name}codes", codes, torch.float8_e4m3fn, shape)
    grid = (*outer, -(-rows // block[0]), -(-columns // block[1]))
    check_operand(f"{name}scales", scales, torch.float32, grid)


def _fake_linear(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    block_rows: int,
    block_columns: int,
    quantize_input: bool,
) -> Tensor:
    rows, columns = codes.shape
    _check_matrix("", codes, scales, (rows, columns), (block_rows, block_columns))
    return check_linear(x, columns, rows, bias)


def _fake_experts(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate_up_codes: Tensor,
    gate_up_scales: Tensor,
    down_codes: Tensor,
    down_scales: Tensor,
    block_rows: int,
    block_columns: int,
    quantize_input: bool,
    limit: float | None = None,
) -> Tensor:
    check_routing(x, weights, experts)
    check_limit(limit)
    number, twice, hidden = gate_up_codes.shape[0], gate_up_codes.shape[1], x.shape[1]
    torch._check(
        twice % (2 * block_rows) == 0, lambda: f"gate_up_codes are [E, 2 F, H], F a multiple of {block_rows}"
    )
    block = block_rows, block_columns
    _check_matrix("gate_up_", gate_up_codes, gate_up_scales, (number, twice, hidden), block)
    _check_matrix("down_", down_codes, down_scales, (number, hidden, twice // 2), block)
    return x.new_empty(x.shape)


define(
    "fp8_block_linear(Tensor x, Tensor codes, Tensor scales, Tensor? bias, "
    "int block_rows, int block_columns, bool quantize_input) -> Tensor",
    cpu=fp8_block_linear,
    fake=_fake_linear,
)
define(
    "fp8_block_experts(Tensor x, Tensor weights, Tensor experts, "
    "Tensor gate_up_codes, Tensor gate_up_scales, Tensor down_codes, Tensor down_scales, "
    "int block_rows, int block_columns, bool quantize_input, float? limit=None) -> Tensor",
    cpu=fp8_block_experts,
    fake=_fake_experts,
)

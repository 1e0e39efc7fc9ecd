"""Load-time binding: operators specialised for constant operands when a core is loaded.

oneDNN's packed weights have no storage, so a core cannot hold them; they are made here. Measured on two
cores with AVX512-BF16 (`benchmarks/ops_cpu.py`), a packed product takes about half the time of
`torch.nn.functional.linear` at one to eight rows, and four rows take less time than one or two. One packed
copy serves every row count: the layout does not depend on the rows it is packed for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flare_components.ops.linear import MIN_ROWS

_PACKED_FOR_ROWS = 16


@dataclass(frozen=True, slots=True)
class BoundOp:
    """`call` takes the operator's arguments and ignores the constant ones; `nbytes` were newly allocated."""

    call: Callable[..., Any]
    nbytes: int


def bind(
    name: str, args: tuple[object, ...], constant: tuple[bool, ...], cache: dict[Hashable, Any]
) -> BoundOp | None:
    """Specialise operator `name` ("flare::linear"), or None when nothing is gained.

    args: the operands; what is not constant may be None. constant: whether an operand's contents never
    change. cache: owned by the loaded core; binding one weight again reuses its packed copy,
    which is found by the weight's address, so weights stay allocated until the last call with this cache.
    """
    if name.partition(".")[0] != "flare::linear" or not constant[1] or not _packable(args[1]):
        return None
    bias, bias_bytes = _kept(args[2], cache) if constant[2] else (None, 0)
    packed, packed_bytes = _packed(args[1], cache)
    staging, staging_bytes = _staging(args[1], cache)
    return BoundOp(_packed_linear(packed, bias, staging), bias_bytes + packed_bytes + staging_bytes)


def _identity(kind: str, tensor: Tensor) -> Hashable:
    return kind, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _kept(operand: object, cache: dict[Hashable, Any]) -> tuple[Tensor, int]:
    """A copy of a bias, whose buffer may be released once everything is bound."""
    assert isinstance(operand, Tensor)
    key = _identity("kept", operand)
    if key in cache:
        return cache[key], 0
    cache[key] = operand.clone()
    return cache[key], cache[key].nbytes


def _packed(operand: object, cache: dict[Hashable, Any]) -> tuple[Tensor, int]:
    assert isinstance(operand, Tensor)
    key = _identity("packed", operand)
    if key in cache:
        return cache[key], 0
    cache[key] = torch.ops.mkldnn._reorder_linear_weight(operand.contiguous(), _PACKED_FOR_ROWS)
    return cache[key], operand.numel() * operand.element_size()


def _staging(operand: object, cache: dict[Hashable, Any]) -> tuple[Tensor, int]:
    """The rows that fewer than MIN_ROWS are padded in; programs of one core run one after another."""
    assert isinstance(operand, Tensor)
    key = ("staging", operand.shape[1], operand.dtype)
    if key in cache:
        return cache[key], 0
    cache[key] = torch.zeros(MIN_ROWS, operand.shape[1], dtype=operand.dtype)
    return cache[key], cache[key].nbytes


def _packable(weight: object) -> bool:
    """Whether this processor has packed kernels for the weight's type."""
    assert isinstance(weight, Tensor)
    if weight.dtype == torch.bfloat16:
        supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return supported
    return bool(weight.dtype == torch.float32 and torch.backends.mkldnn.is_available())


def _packed_linear(packed: Tensor, fixed_bias: Tensor | None, staging: Tensor) -> Callable[..., Tensor]:
    product = torch.ops.mkldnn._linear_pointwise.default
    heads = [staging[:rows] for rows in range(MIN_ROWS)]

    def call(x: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> Tensor:
        rows = x.shape[0]
        bias = bias if fixed_bias is None else fixed_bias
        if rows >= MIN_ROWS:
            return product(x, packed, bias, "none", [], "")
        # Rows of the staging buffer beyond x hold earlier inputs; a row never affects another.
        heads[rows].copy_(x)
        return product(staging, packed, bias, "none", [], "")[:rows]

    return call

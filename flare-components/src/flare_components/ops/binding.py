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
    if name.partition(".")[0] != "flare::linear" or not constant[1]:
        return None
    weight, bias = args[1], args[2] if len(args) > 2 else None
    assert isinstance(weight, Tensor)
    if not _packable(weight):
        return None
    fixed_bias = bias if isinstance(bias, Tensor) and constant[2] else None
    key = ("linear", weight.data_ptr(), tuple(weight.shape), weight.stride(), weight.dtype)
    nbytes = 0
    if key not in cache:
        cache[key] = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)
        nbytes += weight.numel() * weight.element_size()
    staging_key = ("staging", weight.shape[1], weight.dtype)
    if staging_key not in cache:
        cache[staging_key] = torch.zeros(MIN_ROWS, weight.shape[1], dtype=weight.dtype)
        nbytes += cache[staging_key].nbytes
    return BoundOp(_packed_linear(cache[key], fixed_bias, cache[staging_key]), nbytes)


def _packable(weight: Tensor) -> bool:
    """Whether this processor has packed kernels for the weight's type."""
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

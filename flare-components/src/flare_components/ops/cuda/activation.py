"""`flare::silu_and_mul`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import cdiv
from flare_components.ops.schema import accelerate

_BLOCK = 1024


@triton.jit
def gate(gate_up, out, width, row_stride, limit, LIMITED: tl.constexpr, BLOCK: tl.constexpr):
    """Program (row, block of columns): out [N, width] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = column < width
    source = gate_up + row * row_stride + column
    gates = tl.load(source, mask=live, other=0.0).to(tl.float32)
    ups = tl.load(source + width, mask=live, other=0.0).to(tl.float32)
    if LIMITED:
        # Bounds in the operands' type, as torch clamps; what is no number stays none.
        top = limit.to(out.dtype.element_ty).to(tl.float32)
        gates = tl.minimum(gates, top, propagate_nan=tl.PropagateNan.ALL)
        ups = tl.clamp(ups, -top, top, propagate_nan=tl.PropagateNan.ALL)
    opened = (gates / (1.0 + tl.exp(-gates))).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * width + column, (opened * ups).to(out.dtype.element_ty), mask=live)


def silu_and_mul(gate_up: Tensor, limit: float | None = None) -> Tensor:
    """As the operator's CPU kernel."""
    if gate_up.stride(1) != 1:
        gate_up = gate_up.contiguous()
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    if rows:
        grid = rows, cdiv(width, _BLOCK)
        bounds = float(limit or 0), limit is not None
        gate[grid](gate_up, out, width, gate_up.stride(0), *bounds, BLOCK=_BLOCK, num_warps=4)
    return out


accelerate("silu_and_mul", silu_and_mul)

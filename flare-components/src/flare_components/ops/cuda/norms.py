"""`flare::rms_norm` and `flare::add_rms_norm`: one program a row, which fits its registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import power_of_two
from flare_components.ops.schema import accelerate


@triton.jit
def normalise(
    x,
    residual,
    weight,
    out,
    inner,
    outer_stride,
    inner_stride,
    width,
    eps,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row i is at x[i // inner, i % inner]; residual (with ADD) and out are contiguous rows."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    live = column < width
    source = x + (row // inner) * outer_stride + (row % inner) * inner_stride + column
    values = tl.load(source, mask=live, other=0.0)
    if ADD:
        place = residual + row * width + column
        total = tl.load(place, mask=live, other=0.0).to(tl.float32) + values.to(tl.float32)
        values = total.to(residual.dtype.element_ty)
        tl.store(place, values, mask=live)
    wide = values.to(tl.float32)
    scale = 1.0 / tl.sqrt_rn(tl.sum(wide * wide, 0) / width + eps)
    normed = (wide * scale).to(out.dtype.element_ty)
    factor = tl.load(weight + column, mask=live, other=0.0)
    scaled = normed.to(tl.float32) * factor.to(tl.float32)
    tl.store(out + row * width + column, scaled.to(out.dtype.element_ty), mask=live)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    width = x.shape[-1]
    rows = x if x.dim() <= 3 and x.stride(-1) == 1 else x.contiguous()
    rows = rows.view(1, 1, width) if rows.dim() == 1 else rows
    rows = rows.flatten(0, -3) if rows.dim() > 3 else rows if rows.dim() == 3 else rows.unsqueeze(1)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        block = power_of_two(width)
        normalise[(rows.shape[0] * rows.shape[1],)](
            rows,
            out if residual is None else residual,
            weight,
            out,
            rows.shape[1],
            rows.stride(0),
            rows.stride(1),
            width,
            eps,
            ADD=residual is not None,
            BLOCK=block,
            num_warps=min(max(block // 512, 1), 16),
        )
    return out


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As the operator's CPU kernel."""
    return _launch(x, None, weight, eps)


def add_rms_norm(residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As the operator's CPU kernel."""
    if residual.is_contiguous():
        return _launch(x, residual, weight, eps)
    return rms_norm(residual.add_(x), weight, eps)


accelerate("rms_norm", rms_norm)
accelerate("add_rms_norm", add_rms_norm)

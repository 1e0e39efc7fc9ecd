"""`flare::rotary`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import cdiv, power_of_two
from flare_components.ops.schema import accelerate

_HEADS = 16  # of one program


@triton.jit
def rotate(
    q,
    k,
    cos,
    sin,
    out,
    heads,
    kv_heads,
    half,
    q_row,
    q_head,
    k_row,
    k_head,
    cos_row,
    sin_row,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (row, HEADS heads of q then k): out [N, heads + kv_heads, 2 * half] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    head, column = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = column < half
    of_q = inside & (head < heads)
    of_k = inside & (head >= heads) & (head < heads + kv_heads)
    at_q = q + row * q_row + head * q_head + column
    at_k = k + row * k_row + (head - heads) * k_head + column
    a = tl.where(of_q, tl.load(at_q, mask=of_q), tl.load(at_k, mask=of_k)).to(tl.float32)
    b = tl.where(of_q, tl.load(at_q + half, mask=of_q), tl.load(at_k + half, mask=of_k)).to(tl.float32)
    cos += row * cos_row
    sin += row * sin_row
    cos_a = tl.load(cos + column, mask=inside, other=0.0).to(tl.float32)
    cos_b = tl.load(cos + half + column, mask=inside, other=0.0).to(tl.float32)
    sin_a = tl.load(sin + column, mask=inside, other=0.0).to(tl.float32)
    sin_b = tl.load(sin + half + column, mask=inside, other=0.0).to(tl.float32)
    target = out + (row * (heads + kv_heads) + head) * 2 * half + column
    kind = out.dtype.element_ty
    tl.store(target, (a * cos_a - b * sin_a).to(kind), mask=of_q | of_k)
    tl.store(target + half, (b * cos_b + a * sin_b).to(kind), mask=of_q | of_k)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """As the operator's CPU kernel; one rounding."""
    q, k, cos, sin = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, cos, sin))
    rows, heads, width = q.shape
    kv_heads = k.shape[1]
    out = q.new_empty(rows, heads + kv_heads, width)
    if rows:
        rotate[(rows, cdiv(heads + kv_heads, _HEADS))](
            q,
            k,
            cos,
            sin,
            out,
            heads,
            kv_heads,
            width // 2,
            q.stride(0),
            q.stride(1),
            k.stride(0),
            k.stride(1),
            cos.stride(0),
            sin.stride(0),
            HEADS=_HEADS,
            BLOCK=power_of_two(width // 2),
            num_warps=4,
        )
    rotated_q, rotated_k = out.split((heads, kv_heads), 1)
    return rotated_q, rotated_k


accelerate("rotary", rotary)

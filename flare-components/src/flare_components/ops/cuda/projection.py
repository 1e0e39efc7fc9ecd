"""What comes before and after a product of few rows, in the kernel of the product.

At one to eight rows a product is a walk through its weights, and a layer is a chain of such walks: what costs
is starting and draining them. So every program norms the short rows itself, out of the L2 cache, and finishes
its outputs itself: adds the residual, opens the gate, or turns the heads and writes them to their pages.
Values are rounded where the separate operators round."""

from __future__ import annotations

import triton
import triton.language as tl

PLAIN, ADD, GATE, HEADS = 0, 1, 2, 3
"""What follows a product: nothing, the residual, the gate, or rotary embedding and pages. The last two need
outputs in pairs: i and i + outputs, or i and i + half a head."""


def tiles(kind: int, out: int, outputs: int, head: int) -> int:
    """Tiles of `out` weight rows; outputs: of the product's result; head: the heads' width."""
    if kind == HEADS:
        return outputs // head * (head // out)
    return -(-outputs // (out // 2 if kind == GATE else out))


@triton.jit
def weight_rows(tile, outputs, half, KIND: tl.constexpr, OUT: tl.constexpr):
    """Rows of the weight that a tile multiplies, pairs side by side, and which of them exist: [OUT]."""
    index = tl.arange(0, OUT)
    if KIND == 2:
        pair = tile * (OUT // 2) + index // 2
        return pair + (index % 2) * outputs, pair < outputs
    elif KIND == 3:
        tiles_a_head = half // (OUT // 2)
        place = (tile % tiles_a_head) * (OUT // 2) + index // 2
        return (tile // tiles_a_head) * 2 * half + place + (index % 2) * half, place < half
    else:
        return tile * OUT + index, tile * OUT + index < outputs


@triton.jit
def inverse_length(x, eps, INPUTS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean(x^2) + eps) of one row."""
    column = tl.arange(0, BLOCK)
    values = tl.load(x + column, mask=column < INPUTS, other=0.0).to(tl.float32)
    return 1.0 / tl.sqrt_rn(tl.sum(values * values, 0) / INPUTS + eps)


@triton.jit
def inverse_lengths(x, x_row, rows, eps, INPUTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """`inverse_length` of every row: [ROWS]."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    live = (row < rows) & (column < INPUTS)
    values = tl.load(x + row * x_row + column, mask=live, other=0.0).to(tl.float32)
    return 1.0 / tl.sqrt_rn(tl.sum(values * values, 1) / INPUTS + eps)


@triton.jit
def scaled(values, scale, gains):
    """A norm's two roundings."""
    normed = (values.to(tl.float32) * scale).to(values.dtype)
    return (normed.to(tl.float32) * gains.to(tl.float32)).to(values.dtype)


@triton.jit
def conclude(
    total,
    tile,
    residual,
    bias,
    out,
    turn,
    rows,
    outputs,
    PAGE: tl.constexpr,
    KIND: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Round total f32[OUT, ROWS] and write what follows from it. turn: (cos, sin, k_pages, v_pages, slots,
    heads, kv_heads, half, cos_row, k_page, v_page)."""
    cos, sin, k_pages, v_pages, slots, heads, kv_heads, half, cos_row, k_page, v_page = turn
    kind = out.dtype.element_ty
    row = tl.arange(0, ROWS)[None, :]
    if HAS_BIAS:
        place, live = weight_rows(tile, outputs, half, KIND, OUT)
        total += tl.load(bias + place, mask=live, other=0.0).to(tl.float32)[:, None]
    rounded = total.to(kind).to(tl.float32)
    if KIND < 2:
        output = tile * OUT + tl.arange(0, OUT)[:, None]
        live = (row < rows) & (output < outputs)
        if KIND == 1:
            rounded += tl.load(residual + row * outputs + output, mask=live, other=0.0).to(tl.float32)
        tl.store(out + row * outputs + output, rounded.to(kind), mask=live)
    else:
        a, b = tl.split(tl.permute(tl.reshape(rounded, (OUT // 2, 2, ROWS)), (0, 2, 1)))
        place = tl.arange(0, OUT // 2)[:, None]
        if KIND == 2:
            output = tile * (OUT // 2) + place
            opened = (a / (1.0 + tl.exp(-a))).to(kind).to(tl.float32)
            live = (row < rows) & (output < outputs)
            tl.store(out + row * outputs + output, (opened * b).to(kind), mask=live)
        else:
            tiles_a_head = half // (OUT // 2)
            head = tile // tiles_a_head
            column = (tile % tiles_a_head) * (OUT // 2) + place
            live = (row < rows) & (column < half)
            at = row * cos_row + column
            cos_a, cos_b = tl.load(cos + at, mask=live), tl.load(cos + half + at, mask=live)
            sin_a, sin_b = tl.load(sin + at, mask=live), tl.load(sin + half + at, mask=live)
            turned_a = (a * cos_a.to(tl.float32) - b * sin_a.to(tl.float32)).to(kind)
            turned_b = (b * cos_b.to(tl.float32) + a * sin_b.to(tl.float32)).to(kind)
            if head < heads:
                to = out + (row * heads + head) * 2 * half + column
                tl.store(to, turned_a, mask=live)
                tl.store(to + half, turned_b, mask=live)
            else:
                slot = tl.load(slots + row, mask=row < rows, other=-1)
                live = live & (slot >= 0)
                page, inside = slot // PAGE, (slot % PAGE) * kv_heads * 2 * half + column
                if head < heads + kv_heads:
                    to = k_pages + page * k_page + inside + (head - heads) * 2 * half
                    tl.store(to, turned_a, mask=live)
                    tl.store(to + half, turned_b, mask=live)
                else:
                    to = v_pages + page * v_page + inside + (head - heads - kv_heads) * 2 * half
                    tl.store(to, a.to(kind), mask=live)
                    tl.store(to + half, b.to(kind), mask=live)

"""The parts that a context was cut into are joined: each has the maximum, the sum and the result of its own
softmax."""

from __future__ import annotations

import triton
import triton.language as tl

from flare_components.ops.cuda.launch import await_inputs


@triton.jit
def join(
    part_results,
    part_peaks,
    part_totals,
    out,
    place,
    members,
    parts,
    width,
    PARTS: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    MEMBERS: tl.constexpr,
):
    """`members` rows and heads of out from `place` on, of the first `parts` of their PARTS parts; zero where
    none saw a token."""
    FEW: tl.constexpr = 16 if SLOTS > 16 else SLOTS
    part, few, column = tl.arange(0, SLOTS)[None, :], tl.arange(0, FEW)[None, :], tl.arange(0, WIDTH)
    member = tl.arange(0, MEMBERS)[:, None]
    begin = (place + member) * PARTS
    exists = (member < members) & (part < parts)
    totals = tl.load(part_totals + begin + part, mask=exists, other=0.0)
    peaks = tl.load(part_peaks + begin + part, mask=exists & (totals > 0.0), other=float("-inf"))
    top = tl.max(peaks, 1)[:, None]
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.where(totals > 0.0, tl.exp(peaks - top), 0.0) * totals, 1)[:, None]
    result = tl.zeros((MEMBERS, WIDTH), tl.float32)
    for start in tl.range(0, parts, FEW, num_stages=1):
        at = begin + start + few
        some = (member < members) & (start + few < parts)
        full = tl.load(part_totals + at, mask=some, other=0.0) > 0.0
        share = tl.exp(tl.load(part_peaks + at, mask=full, other=float("-inf")) - top)
        live = full[:, :, None] & (column < width)[None, None, :]
        from_parts = part_results + at[:, :, None] * width + column[None, None, :]
        result += tl.sum(tl.load(from_parts, mask=live, other=0.0) * share[:, :, None], 1)
    result = result / tl.where(total == 0.0, 1.0, total)
    to = out + (place + member) * width + column[None, :]
    tl.store(to, result.to(out.dtype.element_ty), mask=(member < members) & (column < width)[None, :])


@triton.jit
def join_parts(
    part_results,
    part_peaks,
    part_totals,
    out,
    width,
    PARTS: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One program a row and head: out [N * H, width]; zero where no part saw a token."""
    await_inputs(OVERLAP)
    place = tl.program_id(0).to(tl.int64)
    join(part_results, part_peaks, part_totals, out, place, 1, PARTS, width, PARTS, SLOTS, WIDTH, 1)

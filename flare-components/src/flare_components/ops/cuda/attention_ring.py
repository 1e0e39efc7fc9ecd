"""The warps of `attention_hopper` that copy keys and values of pages into a ring in shared memory."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier


@gluon.jit
def fetch(
    buffer,
    pages,
    strides,
    offsets,
    table,
    start,
    span,
    KEYS: gl.constexpr,
    PAGE: gl.constexpr,
    lay: gl.constexpr,
):
    """Start to copy tokens start to start + KEYS into buffer; zeros for those outside of the span. offsets:
    of KEYS tokens from the starts of their pages."""
    page_stride, kv_stride = strides
    first, last = span
    place = gl.arange(0, KEYS, gl.SliceLayout(1, lay))
    inside = start >= first
    live = gl.expand_dims((start + place < last) & inside, 1)
    if KEYS <= PAGE:
        page = gl.load(table + start // PAGE, mask=inside & (start < last), other=0).to(gl.int64)
        at = pages + page * page_stride + (start % PAGE) * kv_stride + offsets
    elif KEYS == 2 * PAGE:
        page = gl.load(table + start // PAGE, mask=inside & (start < last), other=0).to(gl.int64)
        next = gl.load(table + start // PAGE + 1, mask=inside & (start + PAGE < last), other=0).to(gl.int64)
        at = gl.expand_dims(pages + gl.where(place < PAGE, page, next) * page_stride, 1) + offsets
    else:
        token = start + place
        page = gl.load(table + token // PAGE, mask=(token < last) & inside, other=0).to(gl.int64)
        at = gl.expand_dims(pages + page * page_stride, 1) + offsets
    async_copy.async_copy_global_to_shared(buffer, at, mask=live)


@gluon.jit
def produce(
    ring,
    k_pages,
    v_pages,
    k_strides,
    v_strides,
    table,
    span,
    final,
    count,
    KEYS: gl.constexpr,
    PAGE: gl.constexpr,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Fill the ring. Step n of count + 1: the keys of tile n and the values of tile n - 1; tile 0 starts at
    token `final`."""
    k_shared, v_shared, filled, emptied = ring
    lay: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    token = gl.arange(0, KEYS, gl.SliceLayout(1, lay)) % PAGE
    offsets = (token * k_strides[1])[:, None] + gl.arange(0, WIDTH, gl.SliceLayout(0, lay))[None, :]
    for step in range(count + 1):
        slot = step % STAGES
        mbarrier.wait(emptied.index(slot), (step // STAGES + 1) & 1, pred=step >= STAGES)
        start = final - step * KEYS
        fetch(k_shared.index(slot), k_pages, k_strides, offsets, table, start, span, KEYS, PAGE, lay)
        fetch(v_shared.index(slot), v_pages, v_strides, offsets, table, start + KEYS, span, KEYS, PAGE, lay)
        async_copy.mbarrier_arrive(filled.index(slot), increment_count=False)
    async_copy.wait_group(0)

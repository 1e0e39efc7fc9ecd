"""FlashInfer's XQA kernel for the rows of decoding programs, where FlashInfer is installed.

XQA reads a table row, a length and a query for every sequence, and writes no zeros for an empty one. A small
kernel before it makes all of that from the operator's operands, on the device: every row becomes a sequence
whose last token it is, so any mix of lanes means what it does elsewhere.

The kernel is the one with plain pointers as parameters; FlashInfer takes its kernel with tensor maps, which
hide addresses, for FP8 pages alone. Parts of a context are joined after rounding to the type of the result.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.attention import Operands, row_of_lane
from flare_components.ops.cuda.launch import await_inputs, cdiv, overlap, power_of_two, processors

_MAJORS = (9, 10, 12)
_PAGES = (16, 32, 64, 128)
_MOST_GROUP = 16
"""Query heads of a key head that fit one tile at every width."""
_TILE = 256
"""Tokens that one program reads at a time."""
_NOTHING = tl.constexpr(-1e5)
"""XQA's first maximum of a row. As the sink of every head it adds exp(0) to the sum of a row that saw no
token, whose result is then 0 and not NaN, and exactly 0 to any other sum."""


@triton.jit
def describe_rows(
    starts,
    contexts,
    table,
    lengths,
    pages,
    sinks,
    semaphores,
    lanes,
    heads,
    count,
    columns,
    table_row,
    PAGE: tl.constexpr,
    COLUMNS: tl.constexpr,
    LANES: tl.constexpr,
    HEADS: tl.constexpr,
    COUNT: tl.constexpr,
    RESET: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Program (row, COLUMNS pages): lengths [rows], how many tokens a row sees; pages [rows, columns], where
    they are, the rest not written. The first program writes sinks [heads] and, with RESET, semaphores
    [count]."""
    await_inputs(OVERLAP)
    row, tile = tl.program_id(0), tl.program_id(1)
    lane, visible = row_of_lane(starts, contexts, row, lanes, LANES)
    column = tile * COLUMNS + tl.arange(0, COLUMNS)
    used = (column < columns) & (column < tl.cdiv(visible, PAGE))
    entries = tl.load(table + lane.to(tl.int64) * table_row + column, mask=used, other=0)
    tl.store(pages + row.to(tl.int64) * columns + column, entries, mask=used)
    if tile == 0:
        tl.store(lengths + row, visible)
        if row == 0:
            head, place = tl.arange(0, HEADS), tl.arange(0, COUNT)
            tl.store(sinks + head, tl.full((HEADS,), _NOTHING, tl.float32), mask=head < heads)
            if RESET:
                tl.store(semaphores + place, tl.zeros((COUNT,), tl.int32), mask=place < count)


def describe(operands: Operands, arrivals: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lengths i32[rows, 1], page table i32[rows, MP], sinks f32[H] and zero semaphores i32[rows * KVH or
    more], which are `arrivals` where given."""
    q, k_pages, _, page_table, starts, contexts = operands
    (rows, heads), (page_tokens, kv_heads), columns = q.shape[:2], k_pages.shape[1:3], page_table.shape[1]
    lengths, pages = page_table.new_empty(rows, 1), page_table.new_empty(rows, columns)
    sinks = q.new_empty(heads, dtype=torch.float32)
    count = rows * kv_heads
    semaphores = page_table.new_empty(count) if arrivals is None else arrivals
    tile = min(power_of_two(columns), 1024)
    describe_rows[(rows, cdiv(columns, tile))](
        starts,
        contexts,
        page_table,
        lengths,
        pages,
        sinks,
        semaphores,
        contexts.shape[0],
        heads,
        count,
        columns,
        page_table.stride(0),
        PAGE=page_tokens,
        COLUMNS=tile,
        LANES=power_of_two(contexts.shape[0]),
        HEADS=power_of_two(heads),
        COUNT=power_of_two(count),
        RESET=arrivals is None,
        num_warps=4,
        **overlap(q),
    )
    return lengths, pages, sinks, semaphores


def attend_xqa(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
    arrivals: Tensor | None,
) -> Tensor:
    """As `attention.attend_few`, for operands that `takes` accepts. The parts that are done are counted in
    arrivals, zeros i32[rows * key heads], which are zeros again afterwards; None makes them."""
    rows, heads, width = q.shape
    page_tokens, kv_heads = k_pages.shape[1:3]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not rows:
        return out
    operands = (q, k_pages, v_pages, page_table, query_start, context_lens)
    lengths, pages, sinks, semaphores = describe(operands, arrivals)
    _xqa()(
        q.contiguous().view(rows, 1, heads, width),
        k_pages,
        v_pages,
        pages,
        lengths,
        out.view(rows, 1, heads, width),
        q.new_empty(
            workspace_bytes(rows, heads, kv_heads, width, pages.shape[1] * page_tokens, processors(q)),
            dtype=torch.uint8,
        ),
        semaphores,
        kv_heads,
        page_tokens,
        sinks=sinks,
        q_scale=scale * width**0.5,  # it divides by the root itself
        sm_count=processors(q),
        enable_pdl=overlap(q)["OVERLAP"],
    )
    return out


def workspace_bytes(
    rows: int, heads: int, kv_heads: int, width: int, capacity: int, multiprocessors: int
) -> int:
    """Memory for the parts of contexts up to `capacity` tokens: of each a maximum and a sum of 32 rows in
    FP32, and a tile of 16-bit results of the width that the kernel is padded to."""
    sequences = rows * kv_heads
    parts = sequences * min(max(multiprocessors // sequences, 1), cdiv(capacity, _TILE))
    result = heads // kv_heads * max(power_of_two(width), 64) * 2
    return parts * (2 * 32 * 4 + result) + result  # results begin at a multiple of their own size


def takes(operands: Operands) -> bool:
    """Whether the kernel can run on these operands here: 16-bit, pages and heads of its sizes, K and V
    alike."""
    q, k_pages, v_pages, page_table, _, _ = operands
    (heads, width), (page_tokens, kv_heads) = q.shape[1:], k_pages.shape[1:3]
    return (
        _major(q.device) in _MAJORS
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.dtype == k_pages.dtype == v_pages.dtype
        and page_table.dtype == torch.int32
        and fits(page_tokens, width, heads // kv_heads)
        and k_pages.stride() == v_pages.stride()
        and k_pages.stride(0) % width == 0
        and all(pages.data_ptr() % 16 == 0 for pages in (k_pages, v_pages))
        # It counts heads of a layer's pages in 32 bits.
        and _memory(q.device) < (1 << 32) * width * q.element_size()
    )


def fits(page_tokens: int, width: int, group: int) -> bool:
    """Whether FlashInfer builds the kernel for pages of `page_tokens`, heads of `width` and `group` query
    heads a key head."""
    return page_tokens in _PAGES and width % 16 == 0 and 16 <= width <= 512 and 1 <= group <= _MOST_GROUP


@lru_cache(maxsize=64)
def unavailable(dtype: torch.dtype, page_tokens: int, width: int, group: int, device: torch.device) -> str:
    """Why there is no kernel for these shapes here; empty where there is one. The first call builds it, in
    about a minute, by running it once."""
    if importlib.util.find_spec("flashinfer") is None:
        return "flashinfer-python is not installed"
    q = torch.zeros(1, group, width, dtype=dtype, device=device)
    pages = torch.zeros(2, 1, page_tokens, 1, width, dtype=dtype, device=device)
    table, starts, contexts = (
        torch.tensor(x, dtype=torch.int32, device=device) for x in ([[0]], [0, 1], [1])
    )
    try:
        attend_xqa(q, pages[0], pages[1], table, starts, contexts, 1.0, None)
        torch.cuda.synchronize()
    # What a library, its compiler and its linker raise; preparation goes on without them, and says so.
    except (ImportError, OSError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return ""


def name() -> str:
    """The candidate's name: its times are those of one version."""
    return f"xqa of flashinfer {version('flashinfer-python')}"


@lru_cache(maxsize=1)
def _xqa() -> Any:
    return importlib.import_module("flashinfer.xqa").xqa


@lru_cache(maxsize=8)
def _major(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0] if device.type == "cuda" else 0


@lru_cache(maxsize=8)
def _memory(device: torch.device) -> int:
    nbytes: int = torch.cuda.get_device_properties(device).total_memory
    return nbytes

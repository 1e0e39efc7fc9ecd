"""Operands of every operator that a dense decoder uses, made on the CPU from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flare_components.ops.request_state import PARAMETERS, PROGRESS
from flare_components.ops.sampling import READS

F32, BF16 = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class OpCase:
    """`make(generator)` gives operands of the same shapes for every seed. `tolerance` None: same values."""

    name: str
    op: str
    make: Callable[[torch.Generator], tuple[Any, ...]]
    tolerance: float | None = None


def i32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def normal(g: torch.Generator, *shape: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(shape, generator=g).to(dtype)


def integers(g: torch.Generator, low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=g, dtype=torch.int32)


def some(g: torch.Generator, count: int, among: int, absent: int = 2) -> Tensor:
    """`count` distinct indices below `among`, a few of them -1."""
    chosen = torch.randperm(among, generator=g)[:count].int()
    chosen[torch.randperm(count, generator=g)[:absent]] = -1
    return chosen


def qkv(g: torch.Generator, dtype: torch.dtype, rows: int, heads: int, kv_heads: int, width: int) -> Any:
    return normal(g, rows, heads + 2 * kv_heads, width, dtype=dtype).split([heads, kv_heads, kv_heads], 1)


def attention(
    lanes: int,
    rows: int,
    dtype: torch.dtype,
    *,
    heads: int = 8,
    kv_heads: int = 2,
    width: int = 64,
    page: int = 16,
    longest: int = 300,
) -> Callable[[torch.Generator], tuple[Any, ...]]:
    """Lanes of random lengths in strided pages full of NaN; the last rows belong to no lane."""

    def make(g: torch.Generator) -> tuple[Any, ...]:
        lane_pages = -(-longest // page) + 1
        pages = lanes * lane_pages + 1
        buffer = torch.full((pages, 2, 2, page, kv_heads, width), torch.nan).to(dtype)
        table = torch.full((lanes, lane_pages), -1, dtype=torch.int32)
        free = torch.randperm(pages, generator=g).tolist()
        left, queries, contexts = rows - min(1, rows - 1), [], []
        for lane in range(lanes):
            spread = 1 if rows <= lanes else max(left // max(lanes - lane - 1, 1), 1)
            count = int(torch.randint(0 if lane else 1, spread + 1, (1,), generator=g)) if left else 0
            context = int(torch.randint(count, longest + 1, (1,), generator=g)) if count else 0
            for first in range(0, context, page):
                table[lane, first // page] = where = free.pop()
                buffer[where, 1, :, : context - first] = normal(
                    g, 2, min(page, context - first), kv_heads, width
                ).to(dtype)
            left -= count
            queries.append(count)
            contexts.append(context)
        q = qkv(g, dtype, rows, heads, kv_heads, width)[0]
        starts = torch.tensor([0, *queries]).cumsum(0).int()
        return q, buffer[:, 1, 0], buffer[:, 1, 1], table, starts, i32(*contexts), width**-0.5

    return make


def request_state(g: torch.Generator, slots: int, vocab: int) -> dict[str, Tensor]:
    """Every slot holds another request."""
    extents = {"S": slots, "V": vocab, "K": 5, "B": 6}
    state = {
        name: torch.zeros([extents[dim] for dim in dims], dtype=dtype)
        for name, (dtype, dims) in {**PARAMETERS, **PROGRESS}.items()
    }
    choices: dict[str, list[float]] = {
        "temperature": [0.2, 1.0, 0.7, 1.5, 1e-6],
        "top_p": [0.9, 0.95, 1.0, 1.0, 0.0, 0.999],
        "top_k": [0, 20, 0, 300, 1, vocab],
        "min_p": [0, 0, 0.02, 0.2],
        "repetition_penalty": [1.0, 1.1, 1.3],
        "presence_penalty": [0, 0.5, -0.2],
        "frequency_penalty": [0, 0.3],
        "logprobs_wanted": [-1, 5, 0, 20],
        "min_tokens": [0, 3],
        "max_tokens": [1, 4, 100],
    }
    for name, values in choices.items():
        state[name][:] = torch.tensor(values)[torch.randint(len(values), (slots,), generator=g)]
    for name in ("seed", "counter"):
        state[name][:] = torch.randint(-(2**62), 2**62, (slots,), generator=g)
    state["counter"].bitwise_and_(2**40 - 1)
    for name in ("prompt_counts", "output_counts"):
        state[name][:] = (torch.rand((slots, vocab), generator=g) < 0.05) * integers(g, 1, 4, slots, vocab)
    for name in ("epoch", "generated", "consumed"):
        state[name][:] = integers(g, 0, 6, slots)
    state["pending"][:] = integers(g, 0, vocab, slots)
    state["finished"][:] = (torch.rand(slots, generator=g) < 0.2).int()
    for name in ("stop_ids", "bias_ids"):
        state[name][:] = integers(g, -1, vocab, *state[name].shape)
    state["bias_values"][:] = normal(g, *state["bias_values"].shape) * 5
    state["bias_ids"][:, 1] = state["bias_ids"][:, 0]  # a repeated id adds up
    return state


def sampling(
    lanes: int, slots: int, vocab: int, dtype: torch.dtype, *, mask: bool = False, edits: bool = True
) -> Callable[[torch.Generator], tuple[Any, ...]]:
    def make(g: torch.Generator) -> tuple[Any, ...]:
        state = request_state(g, slots, vocab)
        if not edits:
            state["bias_ids"].fill_(-1)
            state["repetition_penalty"].fill_(1)
            state["presence_penalty"].zero_()
            state["frequency_penalty"].zero_()
        logits = (normal(g, lanes, vocab) * 4).to(dtype)
        logits[lanes // 2, vocab // 2] = (torch.nan, torch.inf, 1.0)[int(integers(g, 0, 3, 1))]
        words = integers(g, -(2**31), 2**31 - 1, lanes, -(-vocab // 32)) if mask else None
        chosen = some(g, lanes, slots, 0 if lanes == 1 else 1)
        return logits, chosen, *(state[name] for name in READS[2:]), words

    return make


def commit(g: torch.Generator) -> tuple[Any, ...]:
    state = request_state(g, 24, 90)
    slots = some(g, 17, 24)
    tokens = integers(g, -2, 90, 17)
    for slot, token in zip(slots[::3].tolist(), tokens[::3].tolist(), strict=True):
        state["stop_ids"][slot, 2] = token
    names = ("counter", "generated", "output_counts", "pending", "finished", "max_tokens", "stop_ids")
    return tokens, slots, *(state[name] for name in names)


def start(slot: int | None) -> Callable[[torch.Generator], tuple[Any, ...]]:
    def make(g: torch.Generator) -> tuple[Any, ...]:
        state, new = request_state(g, 4, 3000), request_state(g, 4, 3000)
        prompt = integers(g, 0, 3000, 2500)
        length = integers(g, 1, 2500, 1)
        prompt[length:] = -1
        slots = i32(-1) if slot is None else integers(g, 0, 4, 1)
        uploaded = [new[name][0] if new[name].dim() == 2 else new[name][:1] for name in PARAMETERS]
        return slots, i32(9), prompt, length, *(t.clone() for t in uploaded), *state.values()

    return make


def outputs(g: torch.Generator) -> tuple[Any, ...]:
    state = request_state(g, 4, 3000)
    prompt, length = integers(g, 0, 3000, 2500), integers(g, 1000, 2500, 1)
    slots, count = integers(g, 0, 4, 1), integers(g, 0, 900, 1)
    return slots, prompt, length, count, state["prompt_counts"], state["output_counts"]


def completion(places: int, top: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    def make(g: torch.Generator) -> tuple[Any, ...]:
        state, lanes = request_state(g, 24, 10), 9
        names = ("epoch", "counter", "generated", "finished", "consumed")
        reads = (normal(g, lanes), integers(g, -1, 10, lanes, 20), normal(g, lanes, 20))
        shapes = ((lanes, places), (lanes, places, top), (lanes, places, top))
        writes = (normal(g, *shapes[0]), integers(g, 0, 9, *shapes[1]), normal(g, *shapes[2]))
        records = integers(g, -9, 9, lanes, 16 + places)
        chosen = some(g, lanes, 24)
        return integers(g, -2, 10, lanes), chosen, *(state[n] for n in names), *reads, records, *writes

    return make


def decoding(g: torch.Generator) -> tuple[Any, ...]:
    state = request_state(g, 24, 10)
    return some(g, 9, 24), state["pending"], state["consumed"], state["finished"]


def kv_write(dtype: torch.dtype, heads: int, width: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    def make(g: torch.Generator) -> tuple[Any, ...]:
        _, k, v = qkv(g, dtype, 9, 4, heads, width)
        pages = normal(g, 11, 2, 2, 8, heads, width, dtype=dtype)
        return k, v, pages[:, 1, 0], pages[:, 1, 1], some(g, 9, 88).long()

    return make


def linear(dtype: torch.dtype, rows: int, outputs: int, inputs: int, bias: bool) -> Callable[..., Any]:
    def make(g: torch.Generator) -> tuple[Any, ...]:
        weight = (normal(g, outputs, inputs) / inputs**0.5).to(dtype)
        return normal(g, rows, inputs, dtype=dtype), weight, normal(g, outputs, dtype=dtype) if bias else None

    return make


def products(
    op: str, dtype: torch.dtype, rows: int, outputs: int, inputs: int, bias: bool = False
) -> Callable[..., Any]:
    """Operands of a fused product; the gate's weight has twice the outputs."""

    def make(g: torch.Generator) -> tuple[Any, ...]:
        x, weight, extra = linear(dtype, rows, outputs * (2 if op == "norm_gate" else 1), inputs, bias)(g)
        gain = normal(g, inputs, dtype=dtype)
        return {
            "linear_add": (normal(g, rows, outputs, dtype=dtype), x, weight, extra),
            "norm_linear": (x, gain, 1e-5, weight, extra),
            "norm_gate": (x, gain, 1e-5, weight),
        }[op]

    return make


def norm_attention(
    rows: int, dtype: torch.dtype, inputs: int, bias: bool = False, **shape: int
) -> Callable[[torch.Generator], tuple[Any, ...]]:
    """Lanes as `attention` makes them, whose last tokens are written to distinct slots of their pages."""

    def make(g: torch.Generator) -> tuple[Any, ...]:
        q, keys, values, table, starts, contexts, scale = attention(rows, rows, dtype, **shape)(g)
        page, kv_heads, width = keys.shape[1:]
        lanes = [int((starts[1:] <= row).sum()) for row in range(rows)]
        slots = [-1] * rows
        for row, lane in enumerate(lanes):
            if lane < rows and contexts[lane] > 0:
                last = int(contexts[lane]) - 1
                slots[row] = int(table[lane, last // page]) * page + last % page
        outputs = (q.shape[1] + 2 * kv_heads) * width
        x, weight, extra = linear(dtype, rows, outputs, inputs, bias)(g)
        cos, sin = (normal(g, rows, width, dtype=dtype) for _ in "cs")
        before = (x, normal(g, inputs, dtype=dtype), 1e-5, weight, extra, cos, sin, keys, values)
        return *before, torch.tensor(slots), table, starts, contexts, scale

    return make


def _typed(dtype: torch.dtype) -> list[OpCase]:
    kind, fine = ("f32", 2e-6) if dtype == F32 else ("bf16", 2**-7)
    rough = 1e-5 if dtype == F32 else 4 * 2**-7
    mapped = {
        "norm": ("rms_norm", lambda g: (normal(g, 5, 576, dtype=dtype), normal(g, 576, dtype=dtype), 1e-5)),
        "norm of heads": (
            "rms_norm",
            lambda g: (qkv(g, dtype, 5, 4, 2, 80)[1], normal(g, 80, dtype=dtype), 1e-6),
        ),
        "add norm": (
            "add_rms_norm",
            lambda g: (
                *(normal(g, 5, 3072, dtype=dtype) for _ in range(2)),
                normal(g, 3072, dtype=dtype),
                1e-5,
            ),
        ),
        "gate": ("silu_and_mul", lambda g: (normal(g, 5, 2 * 1537, dtype=dtype),)),
        "limited gate": ("silu_and_mul", lambda g: (normal(g, 5, 2 * 1537, dtype=dtype), 0.75)),
        "rotary": (
            "rotary",
            lambda g: (*qkv(g, dtype, 5, 9, 3, 64)[:2], *(normal(g, 5, 64, dtype=dtype) for _ in "cs")),
        ),
    }
    cases = [OpCase(f"{name} {kind}", op, make, 4 * fine) for name, (op, make) in mapped.items()]
    cases += [
        OpCase(f"linear {rows}x{out}x{inner} {kind}", "linear", linear(dtype, rows, out, inner, bias), rough)
        for rows, out, inner, bias in (
            (1, 960, 576, False),
            (3, 100, 1030, True),
            (8, 576, 96, False),
            (40, 96, 64, True),
        )
    ]
    cases += [
        OpCase(f"{op} {rows}x{out}x{inner} {kind}", op, products(op, dtype, rows, out, inner, bias), rough)
        for op in ("linear_add", "norm_linear", "norm_gate")
        for rows, out, inner, bias in ((1, 100, 1030, True), (3, 576, 96, False), (1, 64, 4096, False),
                                       (8, 33, 2056, True), (9, 96, 64, False))
    ]  # fmt: skip
    cases += [
        OpCase(f"norm_attention {name} {kind}", "norm_attention", make, 2 * rough)
        for name, make in {
            "one": norm_attention(1, dtype, 576),
            "four": norm_attention(4, dtype, 96, heads=9, kv_heads=3, longest=900),
            "wide": norm_attention(1, dtype, 3072, heads=6, kv_heads=2, width=128, longest=2000),
            "odd": norm_attention(3, dtype, 100, bias=True, heads=6, kv_heads=2, width=80, page=4),
            "many": norm_attention(9, dtype, 96),
        }.items()
    ]
    cases += [
        OpCase(f"attention {name} {kind}", "paged_attention", make, rough)
        for name, make in {
            "one": attention(1, 1, dtype),
            "decode": attention(9, 9, dtype, heads=9, kv_heads=3),
            "decode wide": attention(3, 3, dtype, heads=4, kv_heads=4, width=128, page=32, longest=2000),
            "decode odd": attention(3, 3, dtype, heads=6, kv_heads=2, width=80, page=4),
            "prefill": attention(1, 70, dtype),
            "prefill long": attention(1, 300, dtype, width=128, longest=900),
            "ragged": attention(5, 150, dtype, heads=6, kv_heads=2, width=80, page=4),
            "ragged wide": attention(3, 400, dtype, heads=6, kv_heads=2, width=128, page=64, longest=700),
            "append": attention(1, 17, dtype, heads=6, kv_heads=2, width=128, page=64, longest=3000),
        }.items()
    ]
    cases += [
        OpCase(f"kv write {kind}", "paged_kv_write", kv_write(dtype, 3, 64)),
        OpCase(f"kv write odd {kind}", "paged_kv_write", kv_write(dtype, 2, 80)),
        OpCase(f"embedding {kind}", "embedding", lambda g: (some(g, 9, 50), normal(g, 50, 576, dtype=dtype))),
        OpCase(
            f"scatter {kind}",
            "scatter_rows",
            lambda g: (
                normal(g, 20, 3, 96, dtype=dtype)[:, 1],
                some(g, 9, 20),
                normal(g, 9, 96, dtype=dtype),
            ),
        ),
        OpCase(f"sample {kind}", "sample", sampling(7, 12, 5000, dtype), 1e-5),
        OpCase(f"sample one {kind}", "sample", sampling(1, 3, 49152, dtype), 1e-5),
    ]
    return cases


CASES = [
    *_typed(F32),
    *_typed(BF16),
    OpCase("sample grammar", "sample", sampling(7, 12, 999, F32, mask=True), 1e-5),
    OpCase("sample unedited", "sample", sampling(9, 12, 40000, BF16, edits=False), 1e-5),
    OpCase("sample large", "sample", sampling(5, 6, 128256, BF16), 1e-5),
    OpCase("sample many", "sample", sampling(60, 64, 32000, BF16), 1e-5),
    OpCase("sample tiny", "sample", sampling(2, 3, 12, F32), 1e-5),
    OpCase(
        "slot mapping",
        "slot_mapping",
        lambda g: (integers(g, 0, 99, 4, 12), integers(g, 0, 96, 300), integers(g, -1, 4, 300), 8),
    ),
    OpCase("gather i32", "gather_rows", lambda g: (integers(g, 0, 99, 20, 7), some(g, 9, 20))),
    OpCase("gather vector", "gather_rows", lambda g: (integers(g, 0, 99, 20), some(g, 9, 20))),
    OpCase(
        "copy blocks",
        "copy_blocks",
        lambda g: (
            torch.randint(0, 256, (9, 4104), generator=g, dtype=torch.uint8),
            i32(3, -1, 2),
            i32(5, 4, -1),
        ),
    ),
    OpCase(
        "copy odd blocks",
        "copy_blocks",
        lambda g: (
            torch.randint(0, 256, (9, 77), generator=g, dtype=torch.uint8),
            i32(1),
            integers(g, 2, 9, 1),
        ),
    ),
    OpCase(
        "set table",
        "set_page_table",
        lambda g: (integers(g, 0, 99, 6, 13), integers(g, 0, 6, 1), integers(g, 0, 99, 13)),
    ),
    OpCase(
        "set no table",
        "set_page_table",
        lambda g: (integers(g, 0, 99, 6, 13), i32(-1), integers(g, 0, 99, 13)),
    ),
    OpCase(
        "extend table",
        "extend_page_table",
        lambda g: (integers(g, 0, 99, 12, 13), some(g, 9, 12), integers(g, -1, 13, 9, 2)),
    ),
    OpCase("decode inputs", "decode_inputs", decoding),
    OpCase("commit", "commit_tokens", commit),
    OpCase("advance", "advance", lambda g: (some(g, 9, 24), integers(g, 0, 50, 9), integers(g, 0, 50, 24))),
    OpCase("completion", "write_completion", completion(1, 5)),
    OpCase("completion of more", "write_completion", completion(3, 20)),
    OpCase("start", "start_request", start(0)),
    OpCase("start nothing", "start_request", start(None)),
    OpCase("count outputs", "count_outputs", outputs),
]

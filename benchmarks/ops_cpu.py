"""A synthetic model step made of the operators alone: medians by batch size, and each operator's share.

    python benchmarks/ops_cpu.py [--context 200] [--decode 1,2,4,8] [--prefill 16,64,256,360,512]

Thirty layers with the widths of a 135M-parameter model and random weights, each layer its own, so that
weights come from memory as they do in a real step. No sampler, no engine: the difference between this and a
served step is everything else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import flare_components.ops as ops

LAYERS, HIDDEN, HEADS, KV_HEADS, WIDTH, FEED_FORWARD, VOCABULARY = 30, 576, 9, 3, 64, 1536, 49152
PAGE_TOKENS, EPS = 16, 1e-5
flare = torch.ops.flare


@dataclass
class Batch:
    """Inputs of one step: N rows of L lanes."""

    ids: Tensor
    positions: Tensor
    lanes: Tensor
    page_table: Tensor
    query_start: Tensor
    context_lens: Tensor
    last: Tensor


class Model:
    """Weights, pages and one callable per product."""

    def __init__(self, context: int, lanes: int, dtype: torch.dtype, packed: bool) -> None:
        self.cache: dict[Any, Any] = {}
        self.packed_bytes = 0
        self.stored: list[Tensor] = []
        self.packed = packed

        def weight(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, dtype=dtype).mul_(columns**-0.5)

        self.embed = weight(VOCABULARY, HIDDEN)
        self.head = self.product(self.embed)
        shapes = {
            "qkv": ((HEADS + 2 * KV_HEADS) * WIDTH, HIDDEN),
            "o": (HIDDEN, HEADS * WIDTH),
            "gate_up": (2 * FEED_FORWARD, HIDDEN),
            "down": (HIDDEN, FEED_FORWARD),
        }
        self.layers = [{k: self.product(weight(*s)) for k, s in shapes.items()} for _ in range(LAYERS)]
        self.norm = torch.ones(HIDDEN, dtype=dtype)
        self.lane_pages = -(-context // PAGE_TOKENS)
        pages = lanes * self.lane_pages
        self.pages = torch.zeros(pages, LAYERS, 2, PAGE_TOKENS, KV_HEADS, WIDTH, dtype=dtype)
        self.table = torch.randperm(pages).view(lanes, self.lane_pages).int()
        self.cos, self.sin = (torch.randn(context, WIDTH, dtype=dtype) for _ in range(2))

    def product(self, weight: Tensor) -> Callable[[Tensor], Tensor]:
        """`x -> x @ weight.T`, bound as a loaded core binds it."""
        self.stored.append(weight)  # packed copies are known by the address of what they copy
        bound = ops.bind("flare::linear", (None, weight, None), (False, True, False), self.cache)
        if bound is None or not self.packed:
            return lambda x: flare.linear(x, weight, None)
        self.packed_bytes += bound.nbytes
        return lambda x: bound.call(x, None, None)

    def batch(self, lanes: int, queries: int, context: int) -> Batch:
        """`lanes` lanes with `queries` rows each, `context` tokens long after them."""
        rows = lanes * queries
        return Batch(
            ids=torch.randint(VOCABULARY, (rows,), dtype=torch.int32),
            positions=torch.arange(context - queries, context, dtype=torch.int32).repeat(lanes),
            lanes=torch.arange(lanes, dtype=torch.int32).repeat_interleave(queries),
            page_table=self.table[:lanes],
            query_start=torch.arange(lanes + 1, dtype=torch.int32) * queries,
            context_lens=torch.full((lanes,), context, dtype=torch.int32),
            last=(torch.arange(lanes) + 1) * queries - 1,
        )

    def step(self, batch: Batch, timed: Callable[..., Any]) -> Tensor:
        """Logits [L, V]."""
        slots = timed(
            "slot_mapping", flare.slot_mapping, batch.page_table, batch.positions, batch.lanes, PAGE_TOKENS
        )
        hidden = timed("embedding", flare.embedding, batch.ids, self.embed)
        cos = timed("gather", flare.gather_rows, self.cos, batch.positions)
        sin = timed("gather", flare.gather_rows, self.sin, batch.positions)
        normed = timed("norm", flare.rms_norm, hidden, self.norm, EPS)
        for number, layer in enumerate(self.layers):
            qkv = timed("qkv", layer["qkv"], normed).view(-1, HEADS + 2 * KV_HEADS, WIDTH)
            q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), 1)
            q, k = timed("rotary", flare.rotary, q, k, cos, sin)
            pages = self.pages[:, number, 0], self.pages[:, number, 1]
            timed("kv_write", flare.paged_kv_write, k, v, *pages, slots)
            lengths = batch.page_table, batch.query_start, batch.context_lens
            attended = timed("attention", flare.paged_attention, q, *pages, *lengths, WIDTH**-0.5)
            out = timed("o", layer["o"], attended.view(-1, HEADS * WIDTH))
            normed = timed("norm", flare.add_rms_norm, hidden, out, self.norm, EPS)
            gate_up = timed("gate_up", layer["gate_up"], normed)
            out = timed("down", layer["down"], timed("silu", flare.silu_and_mul, gate_up))
            normed = timed("norm", flare.add_rms_norm, hidden, out, self.norm, EPS)
        return timed("head", self.head, timed("gather", flare.gather_rows, normed, batch.last))


def _direct(_: str, call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def measure(model: Model, batch: Batch, repeats: int) -> tuple[list[float], dict[str, float]]:
    """Milliseconds of every step, and of each operator in the median of separately timed steps."""
    steps, parts = [], defaultdict(list)
    for _ in range(repeats):
        start = time.perf_counter()
        model.step(batch, _direct)
        steps.append(time.perf_counter() - start)
        spent: dict[str, float] = defaultdict(float)

        def timed(name: str, call: Callable[..., Any], *args: Any, spent: dict[str, float] = spent) -> Any:
            start = time.perf_counter()
            result = call(*args)
            spent[name] += time.perf_counter() - start
            return result

        model.step(batch, timed)
        for name, seconds in spent.items():
            parts[name].append(seconds)
    return [1e3 * step for step in steps], {k: statistics.median(v) * 1e3 for k, v in parts.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--context", type=int, default=200)
    parser.add_argument("--decode", default="1,2,4,8")
    parser.add_argument("--prefill", default="16,64,256,360,512")
    parser.add_argument("--past", type=int, default=0, help="tokens before the prefill chunk")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--plain", action="store_true", help="weights as stored, not packed")
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    decode, prefill = ([int(n) for n in text.split(",") if n] for text in (options.decode, options.prefill))
    longest = max([options.context, *(options.past + rows for rows in prefill)])
    with torch.inference_mode():
        model = Model(longest, max([1, *decode]), getattr(torch, options.dtype), not options.plain)
        print(f"packed {model.packed_bytes / 1e6:.0f} MB")
        cases = [(f"decode {n}", model.batch(n, 1, options.context)) for n in decode]
        cases += [(f"prefill {n}", model.batch(1, n, options.past + n)) for n in prefill]
        for name, batch in cases:
            repeats = options.repeats if batch.ids.shape[0] <= 8 else max(3, options.repeats // 4)
            steps, parts = measure(model, batch, repeats)
            ordered = sorted(parts.items(), key=lambda part: -part[1])
            print(f"{name:12} median {statistics.median(steps):7.2f} ms, best {min(steps):7.2f}: ", end="")
            print(" ".join(f"{k}={v:.2f}" for k, v in ordered if v > 0.005), flush=True)


if __name__ == "__main__":
    main()

"""Times the CUDA operators at the sizes of a 3B decoder: ops_cuda.py [REPORT.json]

Every number is the median of 30 replays of a CUDA graph that runs the operator on several sets of operands in
turn, divided by their number, in microseconds. Products also report every candidate.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import flare_components.ops  # noqa: F401
from flare_components.ops.cuda import attention_hopper, attention_tiles, tuning
from flare_components.ops.request_state import PARAMETERS, PROGRESS
from flare_components.ops.sampling import READS

OPS: Any = torch.ops.flare
HIDDEN, HEADS, KV_HEADS, WIDTH, INNER, VOCAB, LAYERS, PAGE = 3072, 24, 8, 128, 8192, 128256, 28, 16
LAYER = (
    ((HEADS + 2 * KV_HEADS) * WIDTH, HIDDEN),
    (HIDDEN, HEADS * WIDTH),
    (2 * INNER, HIDDEN),
    (HIDDEN, INNER),
)


def replay(calls: Sequence[Callable[[], Any]]) -> float:
    """Microseconds a call."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    times = []
    for _ in range(33):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / len(calls))
    return round(statistics.median(times[3:]), 2)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def products(rows: int, weights: list[torch.Tensor]) -> dict[str, Any]:
    inputs = {width: half(rows, width) for width in (HIDDEN, INNER)}
    calls = [lambda w=w: OPS.linear(inputs[w.shape[1]], w, None) for w in weights]
    tuning.forget()
    before = replay(calls) * len(calls)
    with tuning.tuning() as report:
        for call in calls:
            call()
    after = replay(calls) * len(calls)
    chosen = {
        str(c.shape[:3]): {"chosen": c.name, "us": {k: round(v, 1) for k, v in c.microseconds.items()}}
        for c in report.choices
    }
    return {"cublas_ms": round(before / 1e3, 4), "chosen_ms": round(after / 1e3, 4), "shapes": chosen}


def attention(lanes: int, rows: int, context: int, capacity: int) -> float:
    per_lane, pages = capacity // PAGE, lanes * (capacity // PAGE)
    sets = []
    for _ in range(4):
        table = torch.randperm(pages, device="cuda").int().view(lanes, per_lane)
        k, v = (half(pages, PAGE, KV_HEADS, WIDTH) for _ in "kv")
        starts = torch.arange(lanes + 1, device="cuda", dtype=torch.int32) * (rows // lanes)
        contexts = torch.full((lanes,), context, dtype=torch.int32, device="cuda")
        sets.append((half(rows, HEADS, WIDTH), k, v, table, starts, contexts, WIDTH**-0.5))
    return replay([lambda s=s: OPS.paged_attention(*s) for s in sets])


TILES = ((64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2), (128, 128, 8, 2))


def tiles(shape: tuple[int, int, int, int]) -> list[float]:
    """Prefill with another tile shape and no kernel of one architecture: 2048 tokens, and 512 after 29488."""
    usual = attention_tiles.tile_shape, attention_hopper.takes
    attention_tiles.tile_shape = lambda rows, width, precise, room: shape
    attention_hopper.takes = lambda q, pages, lane_rows: False
    try:
        return [attention(1, 2048, 2048, 4096), attention(1, 512, 30000, 32768)]
    finally:
        attention_tiles.tile_shape, attention_hopper.takes = usual


def sampling(lanes: int, **parameters: float) -> float:
    extents = {"S": lanes, "V": VOCAB, "K": 8, "B": 300}
    state = {
        name: torch.zeros([extents[d] for d in dims], dtype=dtype, device="cuda")
        for name, (dtype, dims) in {**PARAMETERS, **PROGRESS}.items()
    }
    neutral = {
        "temperature": 1,
        "top_p": 1,
        "repetition_penalty": 1,
        "stop_ids": -1,
        "bias_ids": -1,
        "logprobs_wanted": -1,
    }
    for name, value in {**neutral, **parameters}.items():
        state[name].fill_(value)
    slots = torch.arange(lanes, device="cuda", dtype=torch.int32)
    sets = [half(lanes, VOCAB) * 3 for _ in range(4)]
    return replay([lambda x=x: OPS.sample(x, slots, *(state[n] for n in READS[2:]), None) for x in sets])


def small(rows: int) -> dict[str, float]:
    x, w, qkv = half(rows, HIDDEN), half(HIDDEN), half(rows, HEADS + 2 * KV_HEADS, WIDTH)
    q, k, v = qkv.split([HEADS, KV_HEADS, KV_HEADS], 1)
    cos, sin, gates = half(rows, WIDTH), half(rows, WIDTH), half(rows, 2 * INNER)
    pages = half(rows, 2, PAGE, KV_HEADS, WIDTH)
    slots = torch.arange(rows, device="cuda") * PAGE
    calls: dict[str, Callable[[], Any]] = {
        "rms_norm": lambda: OPS.rms_norm(x, w, 1e-5),
        "rotary": lambda: OPS.rotary(q, k, cos, sin),
        "silu_and_mul": lambda: OPS.silu_and_mul(gates),
        "paged_kv_write": lambda: OPS.paged_kv_write(k, v, pages[:, 0], pages[:, 1], slots),
    }
    return {name: replay([call] * 8) for name, call in calls.items()}


def main() -> None:
    torch.manual_seed(0)
    weights = [half(*shape) for _ in range(LAYERS) for shape in LAYER] + [half(VOCAB, HIDDEN)]
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    report["linear"] = {rows: products(rows, weights) for rows in (1, 4, 8)}
    report["weights_gb"] = sum(w.nbytes for w in weights) / 1e9
    del weights
    shapes = ((1, 1, 4000, 4096), (1, 1, 500, 32768), (1, 1, 30000, 32768), (8, 8, 2000, 4096),
              (64, 64, 1000, 4096), (1, 512, 512, 4096), (1, 2048, 2048, 4096),
              (1, 512, 30000, 32768),
              (1, 4096, 4096, 8192), (1, 4096, 65536, 65536), (1, 16, 4107, 8192))  # fmt: skip
    report["attention lanes/rows/context"] = {
        f"{s[0]}/{s[1]}/{s[2]} of {s[3]}": attention(*s) for s in shapes
    }
    report["tiles"] = {str(tile): tiles(tile) for tile in TILES}
    kinds: dict[str, dict[str, float]] = {
        "plain": {}, "top_p": {"top_p": 0.9}, "top_k top_p": {"top_k": 50, "top_p": 0.95},
        "penalties": {"repetition_penalty": 1.1}, "20 logprobs": {"logprobs_wanted": 20},
    }  # fmt: skip
    report["sample"] = {
        lanes: {name: sampling(lanes, **kind) for name, kind in kinds.items()} for lanes in (1, 8, 64)
    }
    report["small"] = {rows: small(rows) for rows in (1, 64, 2048)}
    text = json.dumps(report, indent=1)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()

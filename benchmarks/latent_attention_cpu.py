"""One layer of latent attention with a pooled indexer: milliseconds by rows and context.

    python benchmarks/latent_attention_cpu.py [--context 4096,32768] [--rows 1,512] [--threads 2]

Widths of a 321B-parameter model (64 heads of 256, latents of 512, 32 index heads of 128, 2048 tokens of 4 to
a group), random weights in BF16, packed as a loaded core packs them. `wall` is the median; `cpu` is the least
processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn

import flare_components.ops as ops
from flare_components.modules import LatentAttention, PooledIndexer
from flare_components.serving import Batch, ModelState

HIDDEN, HEADS, QUERY_RANK, RANK, WIDTH = 4096, 64, 1536, 512, 256
INDEX_HEADS, INDEX_WIDTH, GROUP, BUDGET, PAGE = 32, 128, 4, 2048, 256
BF16 = torch.bfloat16


class Packed(nn.Module):
    """A linear layer as a core binds it."""

    def __init__(self, layer: nn.Linear, cache: dict[Any, Any]) -> None:
        super().__init__()
        self.stored = layer.weight.data  # the packed copy is known by its address
        bound = ops.bind("flare::linear", (None, self.stored, None), (False, True, False), cache)
        self.product = bound.call if bound else torch.ops.flare.linear

    def forward(self, x: Tensor) -> Tensor:
        """x [N, in] -> [N, out]."""
        product: Tensor = self.product(x, self.stored, None)
        return product


def layer() -> LatentAttention:
    """The module, with random weights."""
    sizes: dict[str, Any] = {"hidden": HIDDEN, "query_rank": QUERY_RANK, "layer": 0, "dtype": BF16}
    indexer = PooledIndexer(
        heads=INDEX_HEADS, head_dim=INDEX_WIDTH, group=GROUP, budget=BUDGET, eps=1e-6, **sizes
    )
    module = LatentAttention(
        indexer, heads=HEADS, rank=RANK, key_dim=WIDTH, value_dim=WIDTH, eps=1e-5, bias=False, **sizes
    ).to_empty(device="cpu")
    for weight in module.parameters():
        weight.data.copy_(torch.randn(weight.shape) * weight.shape[-1] ** -0.5)
    cache: dict[Any, Any] = {}
    for parent in (module, indexer):
        for name, part in list(parent.named_children()):
            if isinstance(part, nn.Linear):
                setattr(parent, name, Packed(part, cache))
    return module


def sequence(rows: int, context: int) -> tuple[Batch, ModelState]:
    """The last `rows` tokens of one sequence of `context` tokens, and its state."""
    pages = -(-context // PAGE)
    table = (1 + torch.randperm(pages)).int().view(1, -1)
    positions, lanes = torch.arange(context - rows, context).int(), torch.zeros(rows, dtype=torch.int32)
    batch = Batch(
        ids=lanes,
        positions=positions,
        lanes=lanes,
        query_start=torch.tensor([0, rows]).int(),
        context_lens=torch.tensor([context]).int(),
        page_table=table,
        slot_mapping=torch.ops.flare.slot_mapping(table, positions, lanes, PAGE),
        live_rows=torch.tensor([1]).int(),
    )
    stored = {
        "latent": [torch.randn(pages + 1, PAGE, RANK).to(BF16)],
        "selector": [torch.randn(pages + 1, PAGE // GROUP, INDEX_WIDTH).to(BF16)],
    }
    return batch, ModelState(stored, {"selector.open": [torch.randn(2, GROUP, 2, INDEX_WIDTH).to(BF16)]})


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--context", default="4096,32768")
    parser.add_argument("--rows", default="1,512")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        module = layer()
        for rows in map(int, options.rows.split(",")):
            for context in map(int, options.context.split(",")):
                batch, state = sequence(rows, context)
                x = torch.randn(rows, HIDDEN).to(BF16)
                module(x, batch, state)
                wall, cpu = [], []
                for _ in range(15 if rows <= 8 else 3):
                    began, busy = time.perf_counter(), time.process_time()
                    module(x, batch, state)
                    wall.append(1e3 * (time.perf_counter() - began))
                    cpu.append(1e3 * (time.process_time() - busy))
                print(
                    f"{rows:4} rows at {context:7}: wall {statistics.median(wall):8.2f} ms "
                    f"(least {min(wall):8.2f}), cpu {min(cpu):8.2f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Teacher forcing: a known text runs through a core in any division, and every logit is compared."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from flare.contract import DType, ValueSource
from flare.corefile import CoreReader, read_contract
from flare.device.cpu import CpuDevice
from flare.device.direct import DirectRequest, DirectRunner

# A logit comes out of some hundred roundings in a row, whose errors add like the square root of their number:
# ten units in the last place of the largest logit, and three times that for room.
UNITS = 32


class Forced:
    """`ids` on the core at `path`, against the logits of `reference` (a Transformers causal model).

    `want` holds the reference's logits [T, V]. The core's own head runs on the last row of a chunk only; the
    other rows are made from its hidden vectors with the reference's output embedding.
    """

    def __init__(self, path: Path, reference: nn.Module, ids: Sequence[int]) -> None:
        reader = CoreReader(path)
        self.device = CpuDevice(read_contract(reader), reader)
        self.runner = DirectRunner(self.device)
        self.capacities = self.device.contract.capacities
        self.ids = list(ids)
        self.head: nn.Module = reference.get_output_embeddings()
        with torch.inference_mode():
            self.want = self.canonical_logits(reference)

    def canonical_logits(self, reference: nn.Module) -> Tensor:
        """The logits [T, V] of the whole text."""
        logits: Tensor = reference(torch.tensor([self.ids])).logits[0]
        return logits

    def start(self, slot: int) -> DirectRequest:
        """A request that no drawn token can end."""
        hold = {ValueSource.MIN_TOKENS: [self.capacities.context]}
        return self.runner.start(slot, self.ids, extra=hold)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def chunk_logits(self, request: DirectRequest, length: int) -> Tensor:
        """Consume the next `length` tokens; the logits [length, V] behind each."""
        begin, end = request.consumed, request.consumed + length
        size = next(size for size in self.capacities.prefill_tokens if size >= length)
        program = self.runner.programs[f"prefill.{size}"]
        values = self.runner.prefill_values(request, self.ids[begin:end], sample=False)
        probes = self.device.probe(program.name, self.runner.staging(program, values))
        request.consumed = end
        return torch.cat([self.head(probes["hidden"][: length - 1]), probes["logits"][:1]])

    def chunk(self, request: DirectRequest, length: int) -> float:
        """Consume the next `length` tokens; the largest difference of any logit at any of them."""
        begin = request.consumed
        return largest(self.chunk_logits(request, length) - self.want[begin : begin + length])

    def prefill_logits(self, cuts: Sequence[int], end: int | None = None) -> Tensor:
        """The logits [end, V] of the text up to `end` (all of it), cut at `cuts` and at the chunk limit."""
        self.runner.reuse_pages()
        request = self.start(min(1, self.capacities.concurrency - 1))
        limit = self.capacities.prefill_tokens[-1]
        rows = [
            self.chunk_logits(request, min(limit, stop - at))
            for begin, stop in pairwise((0, *cuts, len(self.ids) if end is None else end))
            for at in range(begin, stop, limit)
        ]
        return torch.cat(rows)

    def prefill(self, cuts: Sequence[int], end: int | None = None) -> float:
        """The largest difference for the text up to `end`, cut at `cuts` and at the chunk limit."""
        return largest(self.prefill_logits(cuts, end) - self.want[:end])

    def fill_slots(self, length: int) -> list[DirectRequest]:
        """The first `length` tokens in every slot."""
        self.runner.reuse_pages()
        requests = [self.start(slot) for slot in range(self.capacities.concurrency)]
        limit = self.capacities.prefill_tokens[-1]
        for request in requests:
            for at in range(0, length, limit):
                self.chunk(request, min(limit, length - at))
        self._filled_rows = self.device.storage("rows").clone()
        return requests

    def decode(self, lanes: Sequence[DirectRequest | None], begin: int) -> float:
        """Feed tokens `begin` to the end, one per step, to every active lane; the largest difference.

        `fill_slots(begin)` made the lanes' requests. What they consumed since is undone: pages are written
        over, and rows, whose state cannot be wound back by position, are those of then.
        """
        self.device.storage("rows").copy_(self._filled_rows)
        program = self.runner.programs[f"decode.{len(lanes)}"]
        pending, consumed, generated = (
            self.device.storage(f"state/{name}").view(torch.int32)
            for name in ("pending", "consumed", "generated")
        )
        worst = 0.0
        for position in range(begin, len(self.ids)):
            fed = [self.ids[position]] * len(lanes)
            for request in filter(None, lanes):
                request.history, request.consumed = self.ids[:position], position
                pending[request.slot], consumed[request.slot] = self.ids[position], position
                generated[request.slot] = 0  # or the slot would end at its length
            upload = self.runner.staging(program, self.runner.decode_values(lanes, fed))
            logits = self.device.probe(program.name, upload)["logits"]
            for lane, active in enumerate(lanes):
                if active is not None:
                    worst = max(worst, largest(logits[lane] - self.want[position]))
        return worst


def largest(difference: Tensor) -> float:
    """The largest magnitude in `difference`; infinity where it is not a number."""
    # Not-a-number is a difference too, and compares with nothing.
    return float(difference.abs().nan_to_num(float("inf")).max())


def precision_bound(logits: Tensor, dtype: DType) -> float:
    """The difference that rounding in `dtype` explains: `UNITS` units in the last place of the largest of
    `logits`."""
    eps: float = torch.finfo(torch.float32 if dtype is DType.F32 else torch.bfloat16).eps
    return UNITS * eps * float(logits.abs().max())


def two_way_cuts(length: int, complete: bool) -> list[int]:
    """Every cut, or those around the program sizes, the ends and the middle."""
    if complete:
        return list(range(1, length))
    near = [size + step for size in (16, 64, 128, 512) for step in (-1, 0, 1)]
    return [1, *near, length // 2, length - 1]


def partition(length: int, seed: int) -> list[int]:
    """Up to twelve random cuts, the same for the same seed."""
    numbers = random.Random(seed)
    return sorted(numbers.sample(range(1, length), numbers.randint(2, 12)))


def capacity_lengths(sizes: Sequence[int], length: int) -> list[int]:
    """One less than every program size, the size, and one more."""
    return sorted({size + step for size in sizes for step in (-1, 0, 1) if size + step <= length})


def lane_patterns(
    requests: Sequence[DirectRequest], sizes: Sequence[int]
) -> Iterator[tuple[str, list[DirectRequest | None]]]:
    """For every decode size: all lanes active in another order than the slots, then each lane alone."""
    for size in sizes:
        count = min(size, len(requests))
        everyone: list[DirectRequest | None] = [requests[(lane + 1) % len(requests)] for lane in range(count)]
        yield f"decode.{size}, all lanes", everyone + [None] * (size - count)
        for lane in range(size):
            alone: list[DirectRequest | None] = [None] * size
            alone[lane] = requests[(lane + 2) % len(requests)]
            yield f"decode.{size}, lane {lane}", alone

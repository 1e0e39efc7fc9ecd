"""Teacher forcing: a known text runs through a core in any division, and every logit is compared."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from flare.contract import ValueSource
from flare.corefile import CoreReader, read_contract
from flare.device.cpu import CpuDevice
from flare.prepare.direct import DirectRequest, DirectRunner


class Forced:
    """`ids` on the core at `path`, against the logits of `reference` (a Transformers causal model)."""

    def __init__(self, path: Path, reference: nn.Module, ids: Sequence[int]) -> None:
        reader = CoreReader(path)
        self.device = CpuDevice(read_contract(reader), reader)
        self.runner = DirectRunner(self.device)
        self.capacities = self.device.contract.capacities
        self.ids = list(ids)
        self.head = reference.get_parameter("lm_head.weight").detach()
        with torch.inference_mode():
            self.want: Tensor = reference(torch.tensor([self.ids])).logits[0]

    def start(self, slot: int) -> DirectRequest:
        """A request that no drawn token can end."""
        hold = {ValueSource.MIN_TOKENS: [self.capacities.context]}
        return self.runner.start(slot, self.ids, extra=hold)

    @torch.inference_mode()
    def chunk(self, request: DirectRequest, length: int) -> float:
        """Consume the next `length` tokens; the largest difference of any logit at any of them."""
        begin, end = request.consumed, request.consumed + length
        size = next(size for size in self.capacities.prefill_tokens if size >= length)
        program = self.runner.programs[f"prefill.{size}"]
        values = self.runner.prefill_values(request, self.ids[begin:end], sample=False)
        probes = self.device.probe(program.name, self.runner.staging(program, values))
        request.consumed = end
        # The program's own head runs on the last row only.
        every = probes["hidden"][:length] @ self.head.T - self.want[begin:end]
        last = probes["logits"][0] - self.want[end - 1]
        return max(_largest(every), _largest(last))

    def prefill(self, cuts: Sequence[int], end: int | None = None) -> float:
        """The largest difference for the text up to `end`, cut at `cuts` and at the chunk limit."""
        self.runner.reuse_pages()
        request = self.start(1)
        limit = self.capacities.prefill_tokens[-1]
        worst = 0.0
        for begin, stop in pairwise((0, *cuts, len(self.ids) if end is None else end)):
            for at in range(begin, stop, limit):
                worst = max(worst, self.chunk(request, min(limit, stop - at)))
        return worst

    def fill_slots(self, length: int) -> list[DirectRequest]:
        """The first `length` tokens in every slot."""
        self.runner.reuse_pages()
        requests = [self.start(slot) for slot in range(self.capacities.concurrency)]
        limit = self.capacities.prefill_tokens[-1]
        for request in requests:
            for at in range(0, length, limit):
                self.chunk(request, min(limit, length - at))
        return requests

    def decode(self, lanes: Sequence[DirectRequest | None], begin: int) -> float:
        """Feed tokens `begin` to the end, one per step, to every active lane; the largest difference.

        The slots hold at least the tokens before `begin`; what they consumed behind it is overwritten.
        """
        program = self.runner.programs[f"decode.{len(lanes)}"]
        pending, consumed, generated = (
            self.device.storage(f"state/{name}").view(torch.int32)
            for name in ("pending", "consumed", "generated")
        )
        upload = self.runner.staging(program, self.runner.decode_values(lanes))
        worst = 0.0
        for position in range(begin, len(self.ids)):
            for request in filter(None, lanes):
                pending[request.slot], consumed[request.slot] = self.ids[position], position
                generated[request.slot] = 0  # or the slot would end at its length
            logits = self.device.probe(program.name, upload)["logits"]
            for lane, request in enumerate(lanes):
                if request is not None:
                    worst = max(worst, _largest(logits[lane] - self.want[position]))
        return worst


def _largest(difference: Tensor) -> float:
    # Not-a-number is a difference too, and compares with nothing.
    return float(difference.abs().nan_to_num(float("inf")).max())


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

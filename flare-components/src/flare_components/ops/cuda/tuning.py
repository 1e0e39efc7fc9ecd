"""Which kernel runs an operator at a shape: candidates are timed once, on the operands that come.

    with tuning() as report:
        model(...)              # not captured: every new shape is timed
    graph = capture(model)      # shapes that were timed use their fastest candidate

A shape that was never timed uses the operator's first candidate, which is a library's. Timing waits for the
device, so it never happens during capture.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median
from typing import Any

import torch

_KEPT_BY = 0.97
"""A candidate replaces the first one when its time is below this part of the first one's."""
_SPREAD = 256 << 20  # bytes that the copies of a call's operands take together: more than any L2 cache
_COPIES = 16  # calls of a captured sequence at most
_REPLAYS = 9


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run an operator; `call` takes the operator's operands."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was measured: median microseconds of every candidate, one call after another."""

    operator: str
    shape: Hashable
    name: str
    microseconds: dict[str, float]


@dataclass(slots=True)
class Report:
    """Choices in the order they were made."""

    choices: list[Choice] = field(default_factory=list)


_chosen: dict[tuple[str, Hashable], Candidate] = {}
_report: list[Report] = []


@contextmanager
def tuning() -> Iterator[Report]:
    """Time the candidates of every new shape inside; yields what is found."""
    _report.append(Report())
    try:
        yield _report[-1]
    finally:
        _report.pop()


def forget() -> None:
    """Drop all choices."""
    _chosen.clear()


def choose(
    operator: str, shape: Hashable, candidates: Callable[[], Sequence[Candidate]], operands: tuple[Any, ...]
) -> Candidate:
    """The candidate for `operator` at `shape`, which names everything a choice depends on. Inside `tuning()`
    a new shape is timed on `operands`; the first candidate wins unless another is 3% faster."""
    key = (operator, shape)
    if key in _chosen:
        return _chosen[key]
    found = candidates()
    if not _report or torch.cuda.is_current_stream_capturing():
        return found[0]
    times = {c.name: 1e3 * measure(c, operands) for c in found}
    best = min(found, key=lambda c: times[c.name])
    if times[best.name] >= _KEPT_BY * times[found[0].name]:
        best = found[0]
    _chosen[key] = best
    _report[-1].choices.append(Choice(operator, shape, best.name, times))
    return best


def measure(candidate: Candidate, operands: tuple[Any, ...]) -> float:
    """Median milliseconds of a call among calls that follow each other in a graph, as they will in a program:
    each on its own copy of the operands, so that none finds its weights in the L2 cache."""
    sets = _copies(operands)
    stream = _stream(operands[0].device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        candidate.call(*operands)  # compiles
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            results = [candidate.call(*given) for given in sets]
        finally:
            graph.capture_end()
        del results
        spans = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(_REPLAYS)]
        for begin, end in spans:
            begin.record()
            graph.replay()
            end.record()
    stream.synchronize()
    return median(begin.elapsed_time(end) for begin, end in spans) / len(sets)


@lru_cache(maxsize=8)
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # one, because cuBLAS keeps a workspace for each


def _copies(operands: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    size = sum(x.nbytes for x in operands if isinstance(x, torch.Tensor))
    count = min(max(-(-_SPREAD // max(size, 1)), 1), _COPIES)
    return [operands] + [
        tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in operands) for _ in range(count - 1)
    ]

"""Whether a server kept what it should have given back.

*Flat memory.* The slope of each process's resident memory over the second half of the load, by Theil and Sen
(the median of the slopes between all pairs of samples: up to 29 percent of outliers do not move it; Sen, JASA
63, 1968). The first half is warm-up. Allocators come and go in steps: CPython's arenas are 1 MiB, glibc keeps
up to 128 KiB at the top of each heap, and buffers of a request are larger than a token. GROWTH_KIB over the
judged time, two such arenas, is what a process without a leak may show; so the bound on the slope falls with
the length of the run: 136 KiB/min after 30 minutes, 1365 KiB/min after three.

*Baseline.* Everything counted is compared with the idle server after its warm-up, exactly where it is a count
of what is held, and as an upper bound for descriptors and threads, which a server may also give back.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from soak_samples import COUNTS, Sample

GROWTH_KIB = 2048
FEWEST_SAMPLES = 4


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """Median slope between all pairs of `(x, y)`, x strictly growing; at least two points."""
    return statistics.median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, later in enumerate(points)
        for earlier in points[:place]
    )


@dataclass(frozen=True)
class Growth:
    """Of one process's resident memory over the judged time. `bound` and `slope` in KiB per minute."""

    process: str
    slope: float
    bound: float
    samples: int

    @property
    def flat(self) -> bool:
        """Whether the slope is within its bound."""
        return self.slope <= self.bound

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "flat": self.flat}


def judge_memory(samples: Sequence[Sample]) -> list[Growth]:
    """One verdict per process, from samples under load in order."""
    middle = (samples[0].seconds + samples[-1].seconds) / 2
    judged = [sample for sample in samples if sample.seconds >= middle]
    if len(judged) < FEWEST_SAMPLES:
        raise ValueError(f"{len(judged)} samples in the second half are too few to judge memory")
    minutes = (judged[-1].seconds - judged[0].seconds) / 60
    return [
        Growth(
            process=process,
            slope=theil_sen([(sample.seconds / 60, sample.processes[process].rss) for sample in judged]),
            bound=GROWTH_KIB / minutes,
            samples=len(judged),
        )
        for process in judged[0].processes
    ]


def judge_baseline(before: Sample, after: Sample) -> list[str]:
    """What the idle server holds `after` the load and did not hold `before`; empty when all is back."""
    held = []
    missing = [name for name in COUNTS if name not in before.counts or name not in after.counts]
    if missing:
        held.append(f"not reported by the server: {', '.join(missing)}")
    for name in before.counts:
        first, last = before.counts[name], after.counts.get(name)
        if last is not None and first != last:
            held.append(f"{name}: {first:g} before, {last:g} after")
    for process, first_process in before.processes.items():
        last_process = after.processes[process]
        for name in ("fds", "sockets", "threads"):
            first, last = getattr(first_process, name), getattr(last_process, name)
            if last > first:
                held.append(f"{name} of the {process} process: {first} before, {last} after")
    if after.temporary > before.temporary:
        held.append(f"temporary files: {before.temporary} before, {after.temporary} after")
    return held

"""Where the time of every step went: the host's parts, the program, and the pause before it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import perf_counter_ns
from typing import NamedTuple

from flare.contract import Program
from flare.engine.messages import StepTiming, TimelineReport

_STEPS = 4096


class Submitted(NamedTuple):
    """Nanoseconds that a program took until it was submitted. `first`: there was nothing to do before it."""

    plan: int
    pack: int
    submit: int
    first: bool


@dataclass(slots=True)
class _Step:
    number: int
    program: Program
    lanes: int
    submitted: Submitted
    wait: int
    complete: int
    device_us: float
    gap_us: float
    deliver: int = 0

    def timing(self) -> StepTiming:
        submitted = self.submitted
        return StepTiming(
            number=self.number,
            program=self.program.name,
            kind=self.program.kind.value,
            requests=self.lanes,
            plan_us=submitted.plan / 1e3,
            pack_us=submitted.pack / 1e3,
            submit_us=submitted.submit / 1e3,
            wait_us=self.wait / 1e3,
            complete_us=self.complete / 1e3,
            deliver_us=self.deliver / 1e3,
            device_us=self.device_us,
            gap_us=None if submitted.first else self.gap_us,
        )


class StepTimeline:
    """The last steps, in the order of completion. Costs a few readings of the clock per step; everything
    else is done when somebody asks."""

    now = staticmethod(perf_counter_ns)

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=_STEPS)
        self._number = 0

    def completed(
        self,
        program: Program,
        lanes: int,
        submitted: Submitted,
        wait: int,
        complete: int,
        device_us: float,
        gap_us: float,
    ) -> None:
        """A step with `lanes` lanes in use ended: nanoseconds of the host, microseconds of the device."""
        self._number += 1
        step = _Step(self._number, program, lanes, submitted, wait, complete, device_us, gap_us)
        self._steps.append(step)

    def delivered(self, nanoseconds: int) -> None:
        """The events of the newest step were sent."""
        if self._steps:
            self._steps[-1].deliver = nanoseconds

    def report(self, since: int) -> TimelineReport:
        """Steps with numbers above `since`, which is 0 or `newest` of an earlier report; the oldest first."""
        steps = tuple(step.timing() for step in self._steps if step.number > since)
        return TimelineReport(newest=self._number, steps=steps)

"""Step times of steady decoding, for `Stats`."""

from __future__ import annotations

from collections import deque
from statistics import median

_STEPS = 512


class StepTimes:
    """Medians over the last 512 steps of steady decoding: the period from one decode submission to the next,
    and the device time of the decode programs inside those periods. Steps next to a prefill chunk or an idle
    time are left out of both. Seconds in, milliseconds out; 0.0 before the first."""

    def __init__(self) -> None:
        self._periods: deque[float] = deque(maxlen=_STEPS)
        self._programs: deque[float] = deque(maxlen=_STEPS)
        self._previous: float | None = None
        self._elapsed_us: float | None = None  # of the newest decode completion

    def submitted(self, decode: bool, now: float) -> None:
        """A program was submitted at `now` seconds; `decode` says whether it is a decode program."""
        if decode and self._previous is not None and self._elapsed_us is not None:
            self._periods.append(now - self._previous)
            self._programs.append(self._elapsed_us)
        self._previous = now if decode else None

    def completed(self, decode: bool, elapsed_us: float) -> None:
        """A program took `elapsed_us` on the device."""
        self._elapsed_us = elapsed_us if decode else None

    def idle(self) -> None:
        """Nothing was submitted: the next period would measure waiting."""
        self._previous = None

    @property
    def period_ms(self) -> float:
        """Median step period."""
        return median(self._periods) * 1e3 if self._periods else 0.0

    @property
    def program_ms(self) -> float:
        """Median program time."""
        return median(self._programs) / 1e3 if self._programs else 0.0

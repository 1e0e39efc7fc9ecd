"""Step times of steady decoding, for `Stats`."""

from __future__ import annotations

from collections import deque
from statistics import median

_STEPS = 512


class StepTimes:
    """Medians over the last 512 decode steps: period from submission to submission of consecutive decode
    programs, and device time of decode programs. Seconds in, milliseconds out; 0.0 before the first."""

    def __init__(self) -> None:
        self._periods: deque[float] = deque(maxlen=_STEPS)
        self._programs: deque[float] = deque(maxlen=_STEPS)
        self._previous: float | None = None

    def submitted(self, decode: bool, now: float) -> None:
        """A program was submitted at `now` seconds; `decode` says whether it is a decode program."""
        if decode and self._previous is not None:
            self._periods.append(now - self._previous)
        self._previous = now if decode else None

    def completed(self, decode: bool, elapsed_us: float) -> None:
        """A program took `elapsed_us` on the device."""
        if decode:
            self._programs.append(elapsed_us)

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

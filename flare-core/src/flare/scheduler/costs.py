"""Measured program costs, refined while serving."""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract import Program

_WEIGHT = 0.2  # of the newest measurement


class ProgramCosts:
    """Cost of each program in microseconds: the core's measurement first, then an exponentially weighted
    moving average of what this machine shows.

    A program nobody measured is guessed at the lowest known cost per token. The guess is optimistic for
    small programs (they have a fixed part), so that it is tried and then known.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self._tokens = {program.name: max(program.tokens, 1) for program in programs}
        self._known = {program.name: program.cost_us for program in programs if program.cost_us is not None}

    def of(self, name: str) -> float:
        """Expected microseconds of one run."""
        known = self._known.get(name)
        if known is not None:
            return known
        per_token = min((cost / self._tokens[other] for other, cost in self._known.items()), default=1.0)
        return per_token * self._tokens[name]

    def observe(self, name: str, elapsed_us: float) -> None:
        """Take one measurement into account."""
        if name in self._tokens and elapsed_us > 0:
            known = self._known.get(name)
            self._known[name] = elapsed_us if known is None else known + _WEIGHT * (elapsed_us - known)

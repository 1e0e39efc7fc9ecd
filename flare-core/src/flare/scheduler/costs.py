"""Measured program costs, refined while serving."""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract import Program

_WEIGHT = 0.2  # of the newest measurement, once there are several


class ProgramCosts:
    """Cost of each program in microseconds.

    It starts from the core's own measurement and becomes a moving average of what this machine shows. A
    program that did not run yet is scaled by how the others compare with their prepared costs, so that a
    core measured on a slower machine, or under load, does not keep its larger programs out of use. A program
    nobody measured is guessed at the lowest known cost per token: optimistic, so it is tried and then known.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self._tokens = {program.name: max(program.tokens, 1) for program in programs}
        self._prepared = {
            program.name: program.cost_us for program in programs if program.cost_us is not None
        }
        self._observed: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._scale = 1.0

    def of(self, name: str) -> float:
        """Expected microseconds of one run."""
        observed = self._observed.get(name)
        if observed is not None:
            return observed
        prepared = self._prepared.get(name)
        if prepared is not None:
            return prepared * self._scale
        known = self._prepared | self._observed
        per_token = min((self.of(other) / self._tokens[other] for other in known), default=1.0)
        return per_token * self._tokens[name]

    def observe(self, name: str, elapsed_us: float) -> None:
        """Take one measurement into account."""
        if name not in self._tokens or elapsed_us <= 0:
            return
        count = self._counts.get(name, 0)
        first = elapsed_us if name not in self._prepared else self.of(name)
        before = self._observed.get(name, first)
        # Early measurements count more: the prepared cost is only the first of them.
        self._observed[name] = before + max(_WEIGHT, 1 / (count + 2)) * (elapsed_us - before)
        self._counts[name] = count + 1
        if name in self._prepared:
            both = self._prepared.keys() & self._observed.keys()
            here = sum(self._observed[other] for other in both)
            self._scale = here / sum(self._prepared[other] for other in both)

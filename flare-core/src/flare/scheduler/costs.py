"""Measured program costs, refined while serving."""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract import Program

_WEIGHT = 0.2  # of the newest measurement, once there are several
_DEEP = 1024.0  # tokens before a chunk from which a measurement says more about its slope than about its base


class ProgramCosts:
    """Cost of each program in microseconds: a base, and a slope times the tokens that lie before its own.

    The base starts from the core's own measurement; both follow what this machine shows (normalised least
    mean squares), so that a chunk deep in a long prompt, which attends to all of it, does not make the same
    program look slow at the start of the next. A program that did not run yet is scaled by how the others
    compare with their prepared costs, so that a core measured on a slower machine, or under load, does not
    keep its larger programs out of use; its slope is that of the program nearest in size, by token. A program
    nobody measured is guessed at the lowest known cost per token: optimistic, so it is tried and then known.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self._tokens = {program.name: max(program.tokens, 1) for program in programs}
        self._prepared = {
            program.name: program.cost_us for program in programs if program.cost_us is not None
        }
        self._observed: dict[str, float] = {}
        self._slopes: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._scale = 1.0

    def of(self, name: str, depth: int = 0) -> float:
        """Expected microseconds of one run behind `depth` tokens."""
        base = self._base(name)
        return base + depth * self._slope(name) if depth else base

    def observe(self, name: str, elapsed_us: float, depth: int = 0) -> None:
        """Take one measurement, behind `depth` tokens, into account."""
        if name not in self._tokens or elapsed_us <= 0:
            return
        count = self._counts.get(name, 0)
        base, slope = self._base(name), self._slope(name)
        if not count and name not in self._prepared:
            base = elapsed_us - depth * slope if elapsed_us > depth * slope else elapsed_us
        # Early measurements count more: the prepared cost is only the first of them.
        deep = depth / _DEEP
        step = max(_WEIGHT, 1 / (count + 2)) * (elapsed_us - base - depth * slope) / (1 + deep * deep)
        self._observed[name] = max(base + step, 1.0)
        if depth:
            self._slopes[name] = max(slope + step * deep / _DEEP, 0.0)
        self._counts[name] = count + 1
        if name in self._prepared:
            both = self._prepared.keys() & self._observed.keys()
            here = sum(self._observed[other] for other in both)
            self._scale = here / sum(self._prepared[other] for other in both)

    def _base(self, name: str) -> float:
        observed = self._observed.get(name)
        if observed is not None:
            return observed
        prepared = self._prepared.get(name)
        if prepared is not None:
            return prepared * self._scale
        known = self._prepared | self._observed
        per_token = min((self._base(other) / self._tokens[other] for other in known), default=1.0)
        return per_token * self._tokens[name]

    def _slope(self, name: str) -> float:
        own = self._slopes.get(name)
        if own is not None or not self._slopes:
            return own or 0.0
        tokens = self._tokens[name]
        nearest = min(self._slopes, key=lambda other: abs(self._tokens[other] - tokens))
        return self._slopes[nearest] / self._tokens[nearest] * tokens

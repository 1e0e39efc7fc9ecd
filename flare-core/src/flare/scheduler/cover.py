"""Which prefill programs to run for the tokens that remain of a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flare.contract import Program
from flare.scheduler.costs import ProgramCosts

_DRIFT = 0.1  # relative change of a cost that makes the tables stale
_HORIZON = 4  # exact up to this many largest programs; beyond, the cheapest program per token


class PrefillCover:
    """Covers a prompt's remaining length by prefill programs of least total measured cost.

    Only the last program of a cover may be padded. Lengths are counted in units of the programs' greatest
    common divisor, which loses nothing. Covers are exact (dynamic programming over the remaining length)
    up to a horizon; farther from the end the cheapest program per token is taken, which loses at most a
    little of one program and keeps the table small for any context.
    """

    def __init__(self, programs: Sequence[Program], costs: ProgramCosts) -> None:
        self._programs = sorted(programs, key=lambda program: program.tokens)
        self._costs = costs
        self._unit = math.gcd(*(program.tokens for program in programs))
        self._sizes = [program.tokens // self._unit for program in self._programs]
        self._built_for: list[float] = []
        self._tables: dict[int, list[int]] = {}

    def next(self, remaining: int, limit_us: float = math.inf, depth: int = 0) -> Program:
        """The program to run next when `remaining` > 0 tokens are left behind `depth`.

        Only programs that cost at most `limit_us` are used, or the cheapest one when none does: a prompt
        always advances.
        """
        costs = [self._costs.of(program.name, depth) for program in self._programs]
        if self._stale(costs):
            self._built_for = costs
            self._tables.clear()
        allowed = _prefix(costs, limit_us)
        units = -(-remaining // self._unit)
        horizon = _HORIZON * self._sizes[allowed - 1]
        if units > horizon:
            best = min(range(allowed), key=lambda n: (costs[n] / self._sizes[n], -self._sizes[n]))
            return self._programs[best]
        table = self._tables.get(allowed)
        if table is None:
            table = self._tables[allowed] = _choices(self._sizes[:allowed], self._built_for, horizon)
        return self._programs[table[units]]

    def least(self, tokens: int) -> Program:
        """The smallest program that takes `tokens` at once."""
        return next(program for program in self._programs if program.tokens >= tokens)

    def _stale(self, costs: list[float]) -> bool:
        if not self._built_for:
            return True
        return any(abs(now - then) > _DRIFT * then for now, then in zip(costs, self._built_for, strict=True))


def _prefix(costs: Sequence[float], limit_us: float) -> int:
    """Leading programs, by size, that all cost at most `limit_us`; at least one. Prefixes keep tables few."""
    count = 0
    while count < len(costs) and costs[count] <= limit_us:
        count += 1
    return max(count, 1)


def _choices(sizes: Sequence[int], costs: Sequence[float], horizon: int) -> list[int]:
    """For every remaining length 0..horizon in units, the index of the program to run first.

    Among equally cheap covers the larger program goes first, so that padding comes last.
    """
    best = [0.0] * (horizon + 1)
    choice = [0] * (horizon + 1)
    for length in range(1, horizon + 1):
        best[length] = math.inf
        for index, size in enumerate(sizes):
            total = costs[index] + best[max(length - size, 0)]
            if total <= best[length] + 1e-9:
                best[length], choice[length] = total, index
    return choice

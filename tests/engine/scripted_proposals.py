"""Proposals that are right as far as a script says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flare.device.sim_ops import mix
from flare.scheduler import Request


class ScriptedProposals:
    """Proposes what `expected(request id)` says comes next. By hash of the place in the output, and of `key`,
    some of the proposals are wrong and some are missing; with key None all are there and right."""

    def __init__(self, expected: Callable[[str], list[int]], key: int | None, vocab_size: int) -> None:
        self._expected = expected
        self._key = key
        self._vocab_size = vocab_size

    def propose(self, request: Request, limit: int) -> Sequence[int]:
        found = self._expected(request.id)[request.generated :][:limit]
        if self._key is None or not found:
            return found
        dice = mix(self._key ^ mix(request.generated))
        wrong, count = dice % (limit + 1), dice // 64 % (2 * limit + 1)
        if wrong < len(found):
            found = [*found[:wrong], (found[wrong] + 1) % self._vocab_size, *found[wrong + 1 :]]
        return found[:count]

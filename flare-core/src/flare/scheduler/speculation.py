"""Speculation: which program verifies how many proposed tokens of whom.

A speculative program is a decode step that may draw several tokens per lane: it consumes a lane's pending
token and as many proposals as it finds right. Where proposals come from follows from the program: from a
`ProposalSource` when it takes them from the host, else from the program itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flare.contract import PreparedContract, Program, ProgramKind, ValueSource
from flare.errors import CapacityError
from flare.scheduler.costs import ProgramCosts
from flare.scheduler.request import Request


class ProposalSource(Protocol):
    """Where the host finds tokens that are likely to follow."""

    def propose(self, request: Request, limit: int) -> Sequence[int]:
        """At most `limit` token ids expected behind `request.tokens`; none when it has no idea."""
        ...


@dataclass(frozen=True, slots=True)
class Round:
    """One speculative step: `lengths[i]` inputs for the i-th request, of which `proposals[i]` are the host's
    (empty when the program makes its own)."""

    program: Program
    lengths: list[int]
    proposals: list[Sequence[int]]


class Speculation:
    """Chooses the speculative program of every step.

    `width` is the most inputs of a lane, `pages_per_step` the most pages that one step appends to its table.
    `drafted` proposals were submitted, `accepted` of them were right.
    """

    def __init__(
        self,
        contract: PreparedContract,
        draft_tokens: int | None,
        costs: ProgramCosts,
        source: ProposalSource | None,
    ) -> None:
        """Use programs of at most `draft_tokens` proposals, all when None. Raises CapacityError when none is
        prepared for exactly as many, or for as many requests as the core serves."""
        prepared = contract.of_kind(ProgramKind.SPECULATIVE)
        widths = sorted({_width(program) for program in prepared})
        self.width = widths[-1] if draft_tokens is None and widths else (draft_tokens or 0) + 1
        if self.width not in widths:
            counts = ", ".join(str(width - 1) for width in widths) or "none"
            raise CapacityError(
                f"no program for {draft_tokens} draft tokens; this core has programs for: {counts}"
            )
        self._programs = [program for program in prepared if _width(program) <= self.width]
        widest = max(program.lanes for program in self._programs if _width(program) == self.width)
        if widest < contract.capacities.concurrency:
            raise CapacityError(
                f"programs for {self.width - 1} draft tokens take {widest} requests, the core serves "
                f"{contract.capacities.concurrency}"
            )
        self._source = source
        self._host_proposals = any(_takes_proposals(program) for program in self._programs)
        self._costs = costs
        self.drafted = self.accepted = 0
        self.pages_per_step = -(-contract.capacities.verification_width // contract.page.page_tokens)

    def round(self, requests: Sequence[Request], rooms: Sequence[int]) -> Round | None:
        """The next step of `requests`, of which each has pages for `rooms[i]` >= 1 more tokens. None when an
        ordinary decode step does as much: nobody has proposals, and they would be the host's."""
        wanted: list[int] = []
        proposals: list[Sequence[int]] = []
        for request, room in zip(requests, rooms, strict=True):
            # A step draws at most as many tokens as it has inputs.
            limit = min(self.width, request.max_tokens - request.generated, room)
            if self._host_proposals:
                found = self._proposed(request, limit - 1)
                proposals.append(found)
                limit = 1 + len(found)
            else:
                proposals.append(())
                if request.constrained:  # what may follow a draft is known when the host knows the draft
                    limit = 1
            wanted.append(limit)
        if self._host_proposals and max(wanted) == 1:
            return None
        program = self._cheapest(wanted)
        lengths = _dealt(wanted, _width(program), program.tokens)
        cut = [found[: length - 1] for found, length in zip(proposals, lengths, strict=True)]
        return Round(program, lengths, cut)

    def observe(self, drafted: int, accepted: int) -> None:
        """A lane's proposals were verified."""
        self.drafted += drafted
        self.accepted += accepted

    def expected(self, lanes: int) -> Program:
        """The program of a step in which every lane uses the whole width."""
        return self._cheapest([self.width] * lanes)

    def _proposed(self, request: Request, limit: int) -> Sequence[int]:
        if self._source is None or limit < 1:
            return ()
        found = self._source.propose(request, limit)
        assert len(found) <= limit, f"{len(found)} proposals, asked for {limit}"
        return found

    def _cheapest(self, wanted: Sequence[int]) -> Program:
        """The cheapest program that takes all inputs, or the one that takes most of them."""
        enough = [program for program in self._programs if program.lanes >= len(wanted)]
        whole = [p for p in enough if _width(p) >= max(wanted) and p.tokens >= sum(wanted)]
        if whole:
            return min(whole, key=lambda program: self._costs.of(program.name))
        return max(enough, key=lambda program: sum(_dealt(wanted, _width(program), program.tokens)))


def _width(program: Program) -> int:
    assert program.speculation is not None
    return program.speculation.width


def _takes_proposals(program: Program) -> bool:
    return any(binding.source is ValueSource.HOST_PROPOSALS for binding in program.bindings)


def _dealt(wanted: Sequence[int], width: int, rows: int) -> list[int]:
    """Inputs of every lane, one at least: `wanted` bounded by `width`, and all together by `rows`, which are
    dealt in turn."""
    lengths = [min(length, width) for length in wanted]
    excess = sum(lengths) - rows
    while excess > 0:
        longest = max(lengths)
        for index in reversed(range(len(lengths))):
            if lengths[index] == longest and excess > 0:
                lengths[index] -= 1
                excess -= 1
    return lengths

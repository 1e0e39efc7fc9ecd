"""Steps: which program requests run next, and what its lanes hold. Who runs next, the scheduler decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flare.contract import PreparedContract, Program, ProgramKind
from flare.scheduler.costs import ProgramCosts
from flare.scheduler.cover import PrefillCover
from flare.scheduler.images import Images
from flare.scheduler.plan import Capture, Lane, Transfer
from flare.scheduler.request import Phase, Request
from flare.scheduler.residency import Residency
from flare.scheduler.settings import LEAST_PAUSE_MS, SLOWDOWN, Settings
from flare.scheduler.speculation import ProposalSource, Round, Speculation


@dataclass(frozen=True, slots=True)
class Step:
    """A program and its active lanes."""

    program: Program
    lanes: list[Lane]


class Steps:
    """Makes steps, and moves the requests in them on as if they had run. `costs` are refined from outside."""

    def __init__(
        self,
        contract: PreparedContract,
        residency: Residency,
        costs: ProgramCosts,
        settings: Settings,
        proposals: ProposalSource | None,
    ) -> None:
        self._residency = residency
        self._costs = costs
        self._inter_token_ms = settings.inter_token_ms
        self._start = contract.of_kind(ProgramKind.START)[0]
        self._restore = _only(contract, ProgramKind.RESTORE)
        self._snapshot = _only(contract, ProgramKind.SNAPSHOT)
        self._resume = _only(contract, ProgramKind.RESUME)
        self._decodes = contract.of_kind(ProgramKind.DECODE)
        self._images = Images(contract)
        self._cover = PrefillCover(contract.of_kind(ProgramKind.PREFILL), costs)
        self.speculation: Speculation | None = None
        if settings.draft_tokens or (settings.draft_tokens is None and contract.capacities.speculative):
            self.speculation = Speculation(contract, settings.draft_tokens, costs, proposals)

    @property
    def keeps_state(self) -> bool:
        """Whether the core can take and restore snapshots."""
        return self._snapshot is not None and self._restore is not None

    @property
    def resumes(self) -> bool:
        """Whether the core can draw from a snapshot without consuming a token."""
        return self._resume is not None

    def towards_first_draw(self, request: Request, waiting: int, age_us: float) -> Step:
        """The next step of an admitted request that has not drawn yet; short when streams are `waiting` for
        it, which got their last tokens `age_us` before it starts, as far as is known."""
        if not request.started:
            request.started = True
            return Step(self._start, [Lane(request, consumed=0, length=0, sample=False)])
        if request.base is not None and not request.restored:
            return self._restored(request)
        if (image := self._images.next(request)) is not None:
            number, program = image
            self._images.place(request, number)
            return Step(program, [Lane(request, request.consumed, 0, sample=False, image=number)])
        if request.consumed == request.input_length:
            assert self._resume is not None
            return _first_draw(Step(self._resume, [Lane(request, request.consumed, 0, sample=True)]))
        return self._prefilled(request, waiting, age_us)

    def capture(self, capture: Capture) -> Step:
        """A snapshot into the storage of `capture`. A last one leaves the tail page where it is."""
        assert self._snapshot is not None
        request, storage = capture.request, capture.storage
        transfer = Transfer(request.slot.row, storage.row)
        if storage.tail_page is not None and not capture.last:
            tail = request.pages[capture.tokens // self._residency.pages.page_tokens]
            transfer = Transfer(request.slot.row, storage.row, tail, storage.tail_page)
        lane = Lane(request, consumed=capture.tokens, length=0, sample=False, transfer=transfer)
        return Step(self._snapshot, [lane])

    def decode(self, decoding: Sequence[Request]) -> Step | None:
        """One step of every request in `decoding`; None when one of them has no page to write to."""
        speculation = self.speculation
        width, most = (speculation.width, speculation.pages_per_step) if speculation else (1, 1)
        for request in decoding:
            self._residency.grow(request, width, most)
        rooms = [self._residency.room(request, most) for request in decoding]
        if min(rooms) < 1:
            return None
        if speculation and (found := speculation.round(decoding, rooms)) is not None:
            return _verifying(found, decoding)
        lanes = [Lane(r, r.consumed, 1, True, page_updates=r.page_updates[:1]) for r in decoding]
        for request in decoding:
            del request.page_updates[:1]
            request.consumed += 1
            request.drawn += 1
        return Step(self._smallest(len(lanes)), lanes)

    def _restored(self, request: Request) -> Step:
        assert request.base is not None
        assert self._restore is not None
        request.restored = True
        request.consumed = request.confirmed = request.base.tokens
        storage = request.base.storage
        transfer = Transfer(storage.row, request.slot.row)
        if storage.tail_page is not None:
            tail = request.pages[request.shared]
            transfer = Transfer(storage.row, request.slot.row, storage.tail_page, tail)
        return Step(self._restore, [Lane(request, request.consumed, 0, sample=False, transfer=transfer)])

    def _prefilled(self, request: Request, waiting: int, age_us: float) -> Step:
        limit_us = self._chunk_limit_us(waiting) - age_us if waiting else math.inf
        end = next((cut for cut in request.endpoints if cut > request.consumed), request.input_length)
        program = self._cover.next(end - request.consumed, limit_us, request.consumed)
        end, whole = self._images.cut(request, min(end, request.consumed + program.tokens))
        length = end - request.consumed
        if whole:
            program = self._cover.least(length)
        last = request.consumed + length == request.input_length
        step = Step(program, [Lane(request, request.consumed, length, sample=last)])
        request.consumed += length
        request.capture_due = request.consumed in request.endpoints
        return _first_draw(step) if last else step

    def _chunk_limit_us(self, lanes: int) -> float:
        """What a chunk may cost so that it and a decode step of `lanes` stay within the budget."""
        usual = self.speculation.expected(lanes) if self.speculation else self._smallest(lanes)
        step_us = self._costs.of(usual.name)
        if self._inter_token_ms is None:
            return max(step_us * SLOWDOWN, LEAST_PAUSE_MS * 1000.0) - step_us
        return self._inter_token_ms * 1000.0 - step_us

    def _smallest(self, lanes: int) -> Program:
        for program in self._decodes:
            if program.lanes >= lanes:
                return program
        raise AssertionError("capacities hold a decode program for every concurrency")


def _first_draw(step: Step) -> Step:
    request = step.lanes[0].request
    request.drawn += 1
    request.phase = Phase.DECODING
    return step


def _verifying(found: Round, decoding: Sequence[Request]) -> Step:
    lanes: list[Lane] = []
    for request, length, proposals in zip(decoding, found.lengths, found.proposals, strict=True):
        updates, request.page_updates = request.page_updates, []
        lanes.append(Lane(request, request.consumed, length, True, updates, proposals))
    return Step(found.program, lanes)


def _only(contract: PreparedContract, kind: ProgramKind) -> Program | None:
    programs = contract.of_kind(kind)
    return programs[0] if programs else None

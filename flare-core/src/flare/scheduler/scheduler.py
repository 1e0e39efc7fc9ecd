"""The scheduler: who runs next, on which program, and what a completed program means.

Life of a request: waiting -> (slot and pages reserved) prefilling -> decoding -> ended. Its `start` program
goes first, then prefill chunks (the last one draws the first token), then decode batches. Resources are
reserved whole at admission (prompt plus output limit, bounded by the context), so running requests never
wait for each other.

Order of work: when some streams decode and some prompt is unfinished, decode batches and single prefill
chunks alternate; a chunk is small enough that both together stay within the inter-token budget. Prompts are
prefilled one after the other in admission order.

Progress: `plan()` returns None only when frames are in flight, or when nothing is admitted. With nothing
admitted every block is free or about to be, and a request that passed `Limits` fits into empty pools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flare.cache import PagePool, RowPool, SlotPool
from flare.contract import PendingTokens, PreparedContract, Program, ProgramKind, Status
from flare.scheduler.costs import ProgramCosts
from flare.scheduler.cover import PrefillCover
from flare.scheduler.limits import Limits, Refusal
from flare.scheduler.listener import Listener
from flare.scheduler.plan import Lane, Plan
from flare.scheduler.queue import WaitingQueue
from flare.scheduler.records import LaneRecord, check_records
from flare.scheduler.request import Phase, Request, RequestSpec
from flare.scheduler.settings import Settings


class Scheduler:
    """Plans programs for the requests it was given. Not thread-safe; one owner calls it.

    `max_frames` is what the device allows in flight. One frame is used when decode programs take their
    pending token from the host, because every step then needs the completion before it.
    """

    def __init__(
        self,
        contract: PreparedContract,
        listener: Listener,
        settings: Settings | None = None,
        max_frames: int = 1,
    ) -> None:
        settings = settings or Settings()
        capacities = contract.capacities
        self.pages = PagePool(capacities.pages, contract.page.page_tokens)
        self.slots = SlotPool(capacities)
        self.rows = RowPool(capacities)
        self.costs = ProgramCosts(contract.programs)
        self._context = capacities.context
        self._vocab_size = contract.frontend.vocab_size
        self._verification_width = capacities.verification_width
        self._listener = listener
        self._limits = Limits(contract)
        self._inter_token_us = settings.inter_token_ms * 1000.0
        self._start = contract.of_kind(ProgramKind.START)[0]
        self._decodes = contract.of_kind(ProgramKind.DECODE)
        self._cover = PrefillCover(contract.of_kind(ProgramKind.PREFILL), self.costs)
        host_fed = any(program.pending is PendingTokens.HOST for program in self._decodes)
        self._max_frames = 1 if host_fed else max_frames
        self._waiting = WaitingQueue(settings.max_waiting, settings.max_passes)
        self._by_id: dict[str, Request] = {}
        self._running: list[Request] = []  # admitted and not ended, in admission order
        self._admission_due = False
        self._prefill_due = True  # alternates while there are both kinds of work
        self._submitted = 0
        self._completed = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for admission."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that are admitted and have not ended."""
        return len(self._running)

    @property
    def free_rows(self) -> int:
        """Continuation rows in nobody's use: of free slots, and of the snapshot pool."""
        return self.slots.free * self._verification_width + self.rows.free

    @property
    def in_flight(self) -> int:
        """Plans that were handed out and not completed."""
        return self._submitted - self._completed

    def submit(self, spec: RequestSpec) -> Refusal | None:
        """Take a request, and admit it at once when it fits; or say why it is refused."""
        if spec.request_id in self._by_id:
            return Refusal("invalid_request", f"request id {spec.request_id!r} is in use")
        refusal = self._limits.check(spec)
        if refusal is not None:
            return refusal
        if self._waiting.full:
            return Refusal("queue_full", f"{self.waiting} requests are waiting already")
        request = Request(spec, min(spec.max_tokens, self._context - len(spec.prompt)))
        self._by_id[request.id] = request
        self._waiting.append(request)
        self._admission_due = True
        self._admit()
        return None

    def cancel(self, request_id: str) -> bool:
        """End a live request as cancelled; False when there is none of this id.

        Programs that were submitted already run to their end; the request's blocks wait for them.
        """
        request = self._by_id.get(request_id)
        if request is None:
            return False
        if request.phase is Phase.WAITING:
            self._waiting.remove(request)
            self._admission_due = True  # it may have been the one nobody could pass
        self._end(request)
        self._listener.finished(request, "cancelled")
        return True

    def live_ids(self) -> list[str]:
        """Ids of every request that has not ended, oldest first."""
        return list(self._by_id)

    def abandon(self) -> list[Request]:
        """End every request because the engine fails; returns them. Blocks behind fences stay busy."""
        requests = list(self._by_id.values())
        self._waiting.clear()
        for request in requests:
            self._end(request)
        return requests

    def plan(self) -> Plan | None:
        """Reserve and return the next program to submit, or None when nothing can be submitted now."""
        if self._admission_due:
            self._admit()
        if self.in_flight >= self._max_frames:
            return None
        decoding = [r for r in self._running if r.phase is Phase.DECODING and r.drawn < r.max_tokens]
        if self._prefill_due or not decoding:
            for request in self._running:
                if request.phase is Phase.PREFILLING:
                    return self._plan_prefill(request, decoding)
        if decoding:
            return self._plan_decode(decoding)
        assert self._running or not self._waiting or self.in_flight, "a request that fits is not admitted"
        return None

    def complete(self, plan: Plan, records: Sequence[LaneRecord], elapsed_us: float) -> None:
        """Take in the completion of the oldest plan in flight. `records` has one entry per lane of the
        program, or none when the program reports no records.

        Raises ExecutionError, before anything changed, when a record is not what was submitted.
        """
        assert plan.frame == self._completed + 1, "plans complete in submission order"
        if records or plan.program.completion:
            check_records(plan, records, self._vocab_size)
        self._completed = plan.frame
        self.costs.observe(plan.program.name, elapsed_us)
        for pool in (self.pages, self.slots, self.rows):
            if pool.fenced:
                pool.retire(plan.frame)
                self._admission_due = True
            else:
                pool.retire(plan.frame)
        for lane, record in zip(plan.lanes, records, strict=False):
            if lane.request.phase is not Phase.ENDED:
                self._take_record(lane.request, record)

    def _take_record(self, request: Request, record: LaneRecord) -> None:
        if record.status == Status.INVALID:
            # Nothing was drawn or committed, and slots are isolated from each other: only this one fails.
            self._end(request)
            self._listener.failed(request, "the model's logits were not finite")
            return
        if not record.tokens:
            return
        request.generated += len(record.tokens)
        request.last_token = record.tokens[-1]
        self._listener.drew(request, record)
        if record.finished:
            request.device_finished = True
            self._end(request)
            stopped = request.last_token in request.stop_tokens
            self._listener.finished(request, "stop" if stopped else "length")

    def _plan_prefill(self, request: Request, decoding: list[Request]) -> Plan:
        if not request.started:
            request.started = True
            return self._submit(self._start, [Lane(request, consumed=0, length=0, sample=False)])
        self._prefill_due = False
        limit_us = math.inf
        if decoding:
            limit_us = self._inter_token_us - self.costs.of(self._decode_program(len(decoding)).name)
        remaining = request.prompt_length - request.consumed
        program = self._cover.next(remaining, limit_us)
        length = min(remaining, program.tokens)
        lane = Lane(request, consumed=request.consumed, length=length, sample=length == remaining)
        request.consumed += length
        if lane.sample:
            request.drawn = 1
            request.phase = Phase.DECODING
        return self._submit(program, [lane])

    def _plan_decode(self, decoding: list[Request]) -> Plan:
        self._prefill_due = True
        lanes: list[Lane] = []
        for request in decoding:
            lanes.append(Lane(request, consumed=request.consumed, length=1, sample=True))
            request.consumed += 1
            request.drawn += 1
        return self._submit(self._decode_program(len(lanes)), lanes)

    def _decode_program(self, lanes: int) -> Program:
        for program in self._decodes:
            if program.lanes >= lanes:
                return program
        raise AssertionError("capacities hold a decode program for every concurrency")

    def _submit(self, program: Program, lanes: list[Lane]) -> Plan:
        self._submitted += 1
        for lane in lanes:
            lane.request.last_frame = self._submitted
        return Plan(frame=self._submitted, program=program, lanes=lanes)

    def _admit(self) -> None:
        self._admission_due = False
        for request in self._waiting.admit(self._reserve):
            request.phase = Phase.PREFILLING
            self._running.append(request)
            self._listener.admitted(request)

    def _reserve(self, request: Request) -> bool:
        """Take a slot and all pages the request can ever need, or nothing."""
        if not self.slots.free:
            return False
        pages = self.pages.allocate(self.pages.pages_for(request.prompt_length + request.max_tokens))
        if pages is None:
            return False
        slot = self.slots.take()
        assert slot is not None
        request.pages, request.slot = pages, slot
        return True

    def _end(self, request: Request) -> None:
        """Leave the scheduler; blocks become free when the last submitted frame is done with them."""
        admitted = request.phase in (Phase.PREFILLING, Phase.DECODING)
        request.phase = Phase.ENDED
        del self._by_id[request.id]
        if admitted:
            self._running.remove(request)
            self.pages.release(request.pages, request.last_frame)
            self.slots.release((request.slot.index,), request.last_frame)
            self._admission_due = True

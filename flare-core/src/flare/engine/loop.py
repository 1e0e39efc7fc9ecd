"""The engine: one scheduler, one device, one main loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from heapq import nlargest
from typing import Literal, cast

from flare.contract import ProgramKind
from flare.device.base import Device, Frame
from flare.engine.constraints import AdmissibleProposals, Constraints
from flare.engine.image_values import ImageContents
from flare.engine.messages import (
    Admitted,
    CachedPrefix,
    CacheReport,
    Event,
    Failed,
    Finished,
    Rejected,
    RejectReason,
    Stats,
    Submit,
    TokenLogprobs,
    Tokens,
)
from flare.engine.packing import UploadPacker
from flare.engine.process_usage import open_files, resident_bytes
from flare.engine.records import CompletionReader
from flare.engine.tiers import TierTransfers
from flare.engine.timeline import StepTimeline, Submitted
from flare.engine.timing import StepTimes
from flare.errors import DeviceError, ExecutionError, UnavailableError
from flare.scheduler import LaneRecord, Plan, ProposalSource, Request, Saving, Scheduler, Settings

PLANNED_KINDS = (
    ProgramKind.START,
    ProgramKind.RESTORE,
    ProgramKind.VISION,
    ProgramKind.RESUME,
    ProgramKind.PREFILL,
    ProgramKind.DECODE,
    ProgramKind.SPECULATIVE,
    ProgramKind.SNAPSHOT,
)
STEP_KINDS = (ProgramKind.DECODE, ProgramKind.SPECULATIVE)


class Engine:
    """Runs requests on a device and reports what happens through `emit`, in order.

    Single-threaded: commands (`submit`, `cancel`, `stats`) are called between steps by whoever calls
    `step`. Raises CoreError when the core cannot be bound.
    """

    def __init__(
        self,
        device: Device,
        emit: Callable[[Event], None],
        settings: Settings | None = None,
        clock: Callable[[], float] = time.perf_counter,
        transfers: TierTransfers | None = None,
        proposals: ProposalSource | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        contract = device.contract
        programs = [program for kind in PLANNED_KINDS for program in contract.of_kind(kind)]
        self.device = device
        self.constraints = constraints or Constraints(contract, device.tokenizer)
        if proposals is not None:
            proposals = AdmissibleProposals(proposals, self.constraints)
        self.scheduler = Scheduler(contract, self, settings, device.max_frames, transfers, proposals)
        self._transfers = transfers
        self._emit = emit
        self._clock = clock
        self._packers = {
            p.name: UploadPacker(contract, p, device.max_frames, device.tables, self.constraints)
            for p in programs
        }
        self._readers = {p.name: CompletionReader(contract, p) for p in programs}
        self._image_contents = ImageContents(contract)
        self._in_flight: deque[tuple[Plan, Frame, Submitted]] = deque()
        self.timeline = StepTimeline()
        self._rested = True  # there was nothing to do
        self._times = StepTimes()
        self._steps = 0
        self._generated = 0
        self._refusing = False

    # The main loop.

    def step(self) -> bool:
        """Submit what can be submitted, then take in the oldest completion (blocking until it is there).

        Returns False when there was nothing to do: wait for a command. Raises ExecutionError after every
        live request was told `Failed`, when a device or a record can no longer be trusted.
        """
        try:
            self._end_transfers()
            self._take_compiled()
            began = self.timeline.now()
            while (plan := self.scheduler.plan()) is not None:
                began = self._submit(plan, began)
            if not self._in_flight:
                self._times.idle()
                self._rested = True
                return False
            self._collect(*self._in_flight.popleft())
        except (DeviceError, ExecutionError) as error:
            self._fail(error)
        return True

    def _end_transfers(self) -> None:
        if self._transfers is not None:
            for end in self._transfers.ended():
                if isinstance(end, Saving):
                    self.scheduler.saved(end)
                else:
                    self.scheduler.restored(*end)

    def _take_compiled(self) -> None:
        for submit, problem in self.constraints.compiled():
            if problem is not None:
                busy = isinstance(problem, UnavailableError)
                self._reject(submit, "queue_full" if busy else "invalid_request", str(problem))
            elif (refusal := self.scheduler.submit(submit)) is not None:
                self.constraints.forget(submit.request_id)
                self._reject(submit, refusal.reason, refusal.message)

    def _submit(self, plan: Plan, began: int) -> int:
        """Submit a plan that was looked for from `began` nanoseconds on; returns the time when it is done."""
        name = plan.program.name
        planned = self.timeline.now()
        self._times.submitted(plan.program.kind in STEP_KINDS, self._clock())
        upload = self._packers[name].pack(plan)
        packed = self.timeline.now()
        frame = self.device.submit(name, upload)
        ended = self.timeline.now()
        parts = Submitted(planned - began, packed - planned, ended - packed, self._rested)
        self._rested = False
        self._in_flight.append((plan, frame, parts))
        for request_id, message in list(self.constraints.failures.items()):
            self.scheduler.fail(request_id, message)
        return ended

    def _collect(self, plan: Plan, frame: Frame, submitted: Submitted) -> None:
        began = self.timeline.now()
        frame.wait()
        waited = self.timeline.now()
        self._steps += 1
        elapsed_us, lanes = frame.elapsed_us, len(plan.lanes)
        self._times.completed(plan.program.kind in STEP_KINDS, elapsed_us)
        records = self._readers[plan.program.name].read(plan, frame.completion)
        self.scheduler.complete(plan, records, elapsed_us)
        ended = self.timeline.now()
        self.timeline.completed(
            plan.program, lanes, submitted, waited - began, ended - waited, elapsed_us, frame.gap_us
        )

    def _fail(self, error: Exception) -> None:
        self._refusing = True
        self._in_flight.clear()
        lost = [request.id for request in self.scheduler.abandon()]
        for request_id in (*lost, *self.constraints.compiling):
            self._emit(Failed(request_id=request_id, message=str(error)))
        raise ExecutionError(f"the engine failed: {error}") from error

    # Commands.

    @property
    def idle(self) -> bool:
        """Whether no request is live and no program is in flight."""
        return not (
            self.scheduler.running
            or self.scheduler.waiting
            or self.scheduler.leaving
            or self._in_flight
            or self.constraints.compiling
        )

    @property
    def saving(self) -> bool:
        """Whether published checkpoints are still on their way to the tiers."""
        return self._transfers is not None and (
            self._transfers.writing or self.scheduler.write_back.waiting > 0
        )

    def submit(self, request: Submit) -> None:
        """Take a request; answers `Admitted` (now or later) or `Rejected`."""
        if self._refusing:
            self._reject(request, "shutting_down", "the server is shutting down")
            return
        problem = self._image_contents.problem(request)
        if problem is not None:
            self._reject(request, "invalid_request", problem)
        elif request.grammar and (refusal := self.scheduler.refusal(request)) is not None:
            self._reject(request, refusal.reason, refusal.message)
        elif request.grammar:
            self.constraints.begin(request)
            self._take_compiled()
        elif (refusal := self.scheduler.submit(request)) is not None:
            self._reject(request, refusal.reason, refusal.message)

    def cancel(self, request_id: str) -> None:
        """End a request as cancelled; unknown and ended ones are ignored."""
        if request_id not in self.constraints.compiling:
            self.scheduler.cancel(request_id)
            return
        submit = self.constraints.withdraw(request_id)
        prompt = len(submit.prompt)
        self._emit(Finished(request_id=request_id, reason="cancelled", prompt_tokens=prompt, output_tokens=0))

    def shut_down(self, drain: bool) -> None:
        """Refuse new requests; without `drain`, cancel the live ones."""
        self._refusing = True
        if not drain:
            for request_id in (*self.scheduler.live_ids(), *self.constraints.compiling):
                self.cancel(request_id)

    def cache_report(self, most: int) -> CacheReport:
        """The checkpoints used last, `most` of them."""
        tree = self.scheduler.tree
        latest = nlargest(most, tree, key=lambda node: node.accessed)
        return CacheReport(
            total=len(tree),
            checkpoints=tuple(
                CachedPrefix(
                    number=node.serial,
                    parent=None if node.parent is None else node.parent.serial,
                    tokens=node.tokens,
                    pages=node.held_pages,
                    pins=node.pins,
                    accessed=node.accessed,
                    side=node.side,
                )
                for node in latest
            ),
        )

    def stats(self) -> Stats:
        """A snapshot."""
        scheduler = self.scheduler
        stats = Stats(
            running=scheduler.running,
            waiting=scheduler.waiting,
            free_slots=scheduler.slots.free,
            free_pages=scheduler.free_pages,
            total_pages=scheduler.pages.total,
            free_rows=scheduler.free_rows,
            cached_pages=scheduler.tree.held_pages,
            checkpoints=len(scheduler.tree),
            cache_queries=scheduler.prefix.queries,
            cache_hits=scheduler.prefix.hits,
            cache_query_tokens=scheduler.prefix.query_tokens,
            cache_hit_tokens=scheduler.prefix.hit_tokens,
            checkpoints_published=scheduler.tree.counts.published,
            checkpoints_thinned=scheduler.tree.counts.thinned,
            checkpoints_evicted_for_pages=scheduler.tree.counts.evicted_for_pages,
            checkpoints_evicted_for_rows=scheduler.tree.counts.evicted_for_rows,
            captures_skipped=scheduler.prefix.skipped,
            preemptions=scheduler.preemptions,
            steps=self._steps,
            generated_tokens=self._generated,
            step_period_ms=self._times.period_ms,
            program_ms=self._times.program_ms,
            device_growth=self.device.growth,
            resident_bytes=resident_bytes(),
            open_files=open_files(),
        )
        return stats if self._transfers is None else self._transfers.completed(stats)

    def close(self) -> None:
        """Wait for the device and release it."""
        if self._transfers is not None:
            self._transfers.close()
        self.constraints.close()
        self.device.close()

    def _reject(self, request: Submit, reason: RejectReason, message: str) -> None:
        self._emit(Rejected(request_id=request.request_id, reason=reason, message=message))

    # Scheduler listener.

    def admitted(self, request: Request) -> None:
        """See `flare.scheduler.Listener`."""
        self._emit(Admitted(request.id))

    def preempted(self, request: Request) -> None:
        """See `flare.scheduler.Listener`."""

    def drew(self, request: Request, record: LaneRecord) -> None:
        """See `flare.scheduler.Listener`."""
        self._generated += len(record.tokens)
        self._emit(
            Tokens(
                request_id=request.id,
                tokens=tuple(record.tokens),
                logprobs=cast("tuple[TokenLogprobs, ...]", record.logprobs),
            )
        )

    def finished(self, request: Request, reason: Literal["stop", "length", "cancelled"]) -> None:
        """See `flare.scheduler.Listener`."""
        self.constraints.forget(request.id)
        self._emit(
            Finished(
                request_id=request.id,
                reason=reason,
                stop_token=request.last_token if reason == "stop" else None,
                prompt_tokens=request.prompt_length,
                output_tokens=request.generated,
                cached_tokens=request.cached_tokens,
            )
        )

    def failed(self, request: Request, message: str) -> None:
        """See `flare.scheduler.Listener`."""
        self.constraints.forget(request.id)
        self._emit(Failed(request_id=request.id, message=message))

"""The scheduler: who runs next, on which program, and what a completed program means.

Life of a request: waiting -> (slot and pages reserved) prefilling -> decoding -> leaving -> ended. Its
`start` program goes first, then `restore` when a checkpoint of its history exists, then prefill chunks of
what remains (the last one draws the first token; with nothing remaining `resume` draws it), then decode
batches. A preempted request leaves like one that ended, and waits again in front of the queue.

Order of work: snapshots that are due, one at a time; then, when some streams decode and some history is
unfinished, decode batches and single prefill chunks alternate; a chunk is small enough that everything
since the last decode batch and the next one together stay within the inter-token budget. Histories are
prefilled one after the other in admission order. Only decode batches are queued behind each other:
everything else runs alone, so that what it reads and writes is exact.

Pages: a request reserves its history and one page, and grows a page ahead; one with images reserves all.
When a decoder has no page to write to, the newest decoder without images is preempted, and nobody is
admitted until the others got theirs. The last one standing ends at its length.

Tiers: a request whose history is longer in a tier behind the device waits in the queue until it is back
(`flare.scheduler.restores`); published checkpoints are copied to the tiers (`flare.scheduler.write_back`).

Progress: `plan()` returns None only when frames are in flight or transfers on their way, or when nothing is
admitted. With nothing admitted every block is free, about to be, or held by checkpoints that can be given up,
and a request that passed `Limits` fits into empty pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from flare.cache import CheckpointTree, Conversations, PagePool, RowPool, SlotPool
from flare.contract import PendingTokens, PreparedContract, ProgramKind, Status
from flare.scheduler.captures import capture_budget, prefill_endpoints
from flare.scheduler.costs import ProgramCosts
from flare.scheduler.limits import Limits
from flare.scheduler.listener import Listener
from flare.scheduler.plan import Capture, Plan, prefill_depth
from flare.scheduler.queue import WaitingQueue
from flare.scheduler.records import LaneRecord, check_records
from flare.scheduler.refusal import Refusal
from flare.scheduler.request import Phase, Request, RequestSpec
from flare.scheduler.residency import PrefixCounts, Residency
from flare.scheduler.restores import Restores
from flare.scheduler.settings import Settings
from flare.scheduler.speculation import ProposalSource
from flare.scheduler.steps import Step, Steps
from flare.scheduler.tiers import Saving, Ticket, Tiers
from flare.scheduler.write_back import WriteBack


class Scheduler:
    """Plans programs for the requests it was given. Not thread-safe; one owner calls it.

    `max_frames` is what the device allows in flight. One frame is used when decode programs take their
    pending token from the host, because every step then needs the completion before it; and so do steps in
    which a request with a grammar draws.
    """

    def __init__(
        self,
        contract: PreparedContract,
        listener: Listener,
        settings: Settings | None = None,
        max_frames: int = 1,
        tiers: Tiers | None = None,
        proposals: ProposalSource | None = None,
    ) -> None:
        settings = settings or Settings()
        capacities = contract.capacities
        self.residency = Residency(contract)
        self.costs = ProgramCosts(contract.programs)
        self.preemptions = 0
        self._context = capacities.context
        self._vocab_size = contract.frontend.vocab_size
        self._verification_width = capacities.verification_width
        self._listener = listener
        self._limits = Limits(contract)
        self._steps = Steps(contract, self.residency, self.costs, settings, proposals)
        host_fed = any(p.pending is PendingTokens.HOST for p in contract.of_kind(ProgramKind.DECODE))
        # How far a speculative step gets is known when it is complete.
        self._max_frames = 1 if host_fed or self._steps.speculation else max_frames
        keeps = settings.prefix_caching and self._steps.keeps_state
        snapshots = capacities.snapshot_rows if keeps else 0
        self._spacing = capacities.prefill_tokens[0]  # fewer tokens cost one smallest program all the same
        # Of a model that reasons, the next turn may have the answer alone.
        self._answers_return_changed = contract.frontend.output.reasoning is not None
        self._budget = capture_budget(snapshots, capacities.concurrency)
        self.restores = Restores(self.residency, tiers)
        self.write_back = WriteBack(self.tree, tiers)
        self._root = contract.identity.fingerprint.encode()
        self._conversations = Conversations()
        self._waiting = WaitingQueue(settings.max_waiting, settings.max_passes)
        self._by_id: dict[str, Request] = {}
        self._running: list[Request] = []  # admitted and not ended, in admission order
        self._leaving: list[Request] = []
        self._admission_due = False
        self._prefill_due = True  # alternates while there are both kinds of work
        self._growth_due = False  # a decoder waits for a page: nobody else gets one
        self._exclusive = False  # the frame in flight is no decode batch
        self._age_us = 0.0  # expected service submitted since the last decode batch
        self._submitted = 0
        self._completed = 0

    @property
    def pages(self) -> PagePool:
        """Pages of the core."""
        return self.residency.pages

    @property
    def slots(self) -> SlotPool:
        """Slots of the core."""
        return self.residency.slots

    @property
    def rows(self) -> RowPool:
        """Snapshot rows of the core."""
        return self.residency.rows

    @property
    def tree(self) -> CheckpointTree:
        """Published checkpoints."""
        return self.residency.tree

    @property
    def prefix(self) -> PrefixCounts:
        """What admissions found in the cache."""
        return self.residency.prefix

    @property
    def drafted(self) -> tuple[int, int]:
        """Proposed tokens that were verified, and how many of them were right."""
        speculation = self._steps.speculation
        return (speculation.drafted, speculation.accepted) if speculation else (0, 0)

    @property
    def leaving(self) -> int:
        """Requests that were told their end, or preempted, and hold blocks until their last checkpoint."""
        return len(self._leaving)

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
        """Continuation rows a request could get: of free slots, and of the snapshot pool with what nobody
        continues from."""
        return self.slots.free * self._verification_width + self.rows.free + self.tree.removable

    @property
    def free_pages(self) -> int:
        """Pages a request could get: free, or held by checkpoints that nobody continues from."""
        return self.pages.free + self.tree.removable_pages

    @property
    def in_flight(self) -> int:
        """Plans that were handed out and not completed."""
        return self._submitted - self._completed

    def refusal(self, spec: RequestSpec) -> Refusal | None:
        """Why a request would be refused now; None when it would be taken."""
        if spec.request_id in self._by_id:
            return Refusal("invalid_request", f"request id {spec.request_id!r} is in use")
        refusal = self._limits.check(spec)
        if refusal is None and self._waiting.full:
            return Refusal("queue_full", f"{self.waiting} requests are waiting already")
        return refusal

    def submit(self, spec: RequestSpec) -> Refusal | None:
        """Take a request, and admit it at once when it fits; or say why it is refused."""
        refusal = self.refusal(spec)
        if refusal is not None:
            return refusal
        request = Request(spec, min(spec.max_tokens, self._context - len(spec.prompt)), self._root)
        request.standing = self._conversations.standing(
            spec.session, spec.cache_salt, request.identity, request.last_message_end
        )
        self._by_id[request.id] = request
        self._waiting.append(request)
        self._admission_due = True
        self._admit()
        return None

    def cancel(self, request_id: str) -> bool:
        """End a live request as cancelled; False when there is none of this id.

        Programs that were submitted already run to their end; the request's blocks wait for them, and what
        it consumed becomes a checkpoint.
        """
        request = self._by_id.get(request_id)
        if request is None:
            return False
        if request.phase is Phase.WAITING:
            self._waiting.remove(request)
            self.restores.forget(request)
            self._admission_due = True  # it may have been the one nobody could pass
        self._finish(request, "cancelled")
        return True

    def fail(self, request_id: str, message: str) -> None:
        """End a running request that the host cannot go on with; others are not affected. What was submitted
        for it runs to its end and is dropped."""
        request = self._by_id[request_id]
        assert request.phase in (Phase.PREFILLING, Phase.DECODING), request.phase
        self._drop(request)
        self._listener.failed(request, message)

    def live_ids(self) -> list[str]:
        """Ids of every request that has not ended, oldest first."""
        return list(self._by_id)

    def abandon(self) -> list[Request]:
        """End every request because the engine fails; returns them. Blocks behind fences stay busy."""
        requests = list(self._by_id.values())
        self._waiting.clear()
        for request in requests:
            self._drop(request)
        for request in self._leaving:
            self._release(request)
        self._leaving.clear()
        return requests

    def plan(self) -> Plan | None:
        """Reserve and return the next program to submit, or None when nothing can be submitted now."""
        if self._admission_due:
            self._admit()
        if self.in_flight >= self._max_frames or self._exclusive:
            return None
        if (due := self._capture_due()) is not None:
            return None if self.in_flight else self._plan_capture(due)
        decoding = [r for r in self._running if r.phase is Phase.DECODING and r.drawn < r.max_tokens]
        if self._prefill_due or not decoding:
            for request in self._running:
                if request.phase is Phase.PREFILLING:
                    return None if self.in_flight else self._plan_prefill(request, decoding)
        if decoding:
            if self.in_flight and any(request.constrained for request in decoding):
                return None  # its mask follows from the token that is on its way
            return self._plan_decode(decoding)
        going_on = self._running or self.in_flight or self.transferring
        assert going_on or not self._waiting, "a request that fits is not admitted"
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
        self._exclusive = False
        self.costs.observe(plan.program.name, elapsed_us, prefill_depth(plan.program, plan.lanes))
        if self.residency.retire(plan.frame):
            self._admission_due = True
        for lane, record in zip(plan.lanes, records, strict=False):
            if lane.request.phase is not Phase.ENDED:
                self._take_record(lane.request, record)
            if self._steps.speculation and plan.program.kind is ProgramKind.SPECULATIVE:
                self._steps.speculation.observe(lane.length - 1, max(len(record.tokens) - 1, 0))
                lane.request.consumed, lane.request.drawn = lane.request.confirmed, lane.request.generated
        if plan.capture is not None:
            self._take_snapshot(plan.capture, plan.frame)

    # Transfers between the device and the tiers behind it.

    @property
    def transferring(self) -> bool:
        """Whether a transfer holds blocks, which come back when it ends."""
        return self.restores.active + self.write_back.active > 0

    def restored(self, ticket: Ticket, success: bool) -> None:
        """A restoration ended: with every byte in place, or for nothing."""
        checkpoint = self.restores.complete(ticket, success)
        if checkpoint is not None:
            self.write_back.published(checkpoint, ticket.identity)
        self._admission_due = True

    def saved(self, saving: Saving) -> None:
        """A copy does not need the device any more."""
        self.write_back.complete(saving)
        self._admission_due = True

    def _take_record(self, request: Request, record: LaneRecord) -> None:
        if record.status == Status.INVALID:
            # Nothing was drawn or committed, and slots are isolated from each other: only this one fails.
            if request.phase is Phase.LEAVING:
                self._leave(request)
                return
            self._drop(request)
            self._listener.failed(request, "the model's logits were not finite")
            return
        request.confirmed = record.consumed
        if not record.tokens:
            return
        request.accept(record.tokens)
        if request.phase is Phase.LEAVING:
            return
        self._listener.drew(request, record)
        if record.finished:
            request.device_finished = True
            stopped = request.last_token in request.stop_tokens
            self._finish(request, "stop" if stopped else "length")

    # Checkpoints.

    def _capture_due(self) -> Request | None:
        for request in (*self._leaving, *self._running):
            if request.capture_due:
                return request
        return None

    def _plan_capture(self, request: Request) -> Plan | None:
        """A snapshot of the request's state, which is exact because nothing is in flight."""
        last = request.phase is Phase.LEAVING
        request.capture_due = False
        tokens = request.confirmed
        done = 0 if request.base is None else request.base.tokens
        capture = self.residency.reserve_snapshot(request, tokens, last) if tokens > done else None
        if capture is None:
            if last:
                self._leave(request)
            return self.plan()
        return self._submit(self._steps.capture(capture), capture)

    def _take_snapshot(self, capture: Capture, frame: int) -> None:
        request = capture.request
        if request.phase is Phase.ENDED:
            self.residency.abandon(capture, frame)
            return
        checkpoint = self.residency.publish(capture, frame)
        if checkpoint is not None:
            self.write_back.published(checkpoint, request.identity)
        if capture.last:
            self._leave(request)

    def _plan_prefill(self, request: Request, decoding: list[Request]) -> Plan:
        step = self._steps.towards_first_draw(request, len(decoding), self._age_us)
        if step.program.kind not in (ProgramKind.START, ProgramKind.RESTORE):
            self._prefill_due = False
        return self._submit(step)

    def _plan_decode(self, decoding: list[Request]) -> Plan | None:
        step = self._steps.decode(decoding)
        if step is None:
            self._growth_due = True
            if self.in_flight or self.transferring:
                return None
            self._make_way([request for request in decoding if not request.spec.images][-1])
            return self.plan()
        if self._growth_due:
            self._growth_due = False
            self._admission_due = True
        self._prefill_due = True
        return self._submit(step)

    def _make_way(self, newest: Request) -> None:
        """Take the newest decoder's pages, for those before it; or end it when it was alone."""
        if len(self._running) == 1:
            if not self.residency.detach(newest):
                self._finish(newest, "length")
            return
        self.preemptions += 1
        newest.preemptions += 1
        self._running.remove(newest)
        newest.returns = True
        self._depart(newest)
        self._listener.preempted(newest)

    def _submit(self, step: Step, capture: Capture | None = None) -> Plan:
        self._submitted += 1
        kind = step.program.kind
        self._exclusive = kind is not ProgramKind.DECODE
        draws = kind in (ProgramKind.DECODE, ProgramKind.SPECULATIVE)
        cost_us = self.costs.of(step.program.name, prefill_depth(step.program, step.lanes))
        self._age_us = 0.0 if draws else self._age_us + cost_us
        for lane in step.lanes:
            lane.request.last_frame = self._submitted
        return Plan(frame=self._submitted, program=step.program, lanes=step.lanes, capture=capture)

    # Coming and going.

    def _admit(self) -> None:
        if self._growth_due and any(request.phase is Phase.DECODING for request in self._running):
            return
        self._growth_due = self._admission_due = False
        for request in self._waiting.admit(self._reserve):
            request.phase = Phase.PREFILLING
            self._running.append(request)
            reused = 0 if request.base is None else request.base.tokens
            request.endpoints = prefill_endpoints(
                request.spec.endpoints,
                reused=reused,
                prompt_length=request.input_length,
                max_tokens=request.max_tokens - request.before,
                budget=self._budget,
                spacing=self._spacing,
                answers_return_changed=self._answers_return_changed,
            )
            if not request.preemptions:
                request.cached_tokens = reused
                self.prefix.admitted(request.prompt_length, reused)
                self._listener.admitted(request)

    def _reserve(self, request: Request) -> bool:
        limit = 0 if not self._budget else request.input_length - (not self._steps.resumes)
        if self.restores.waits(request, limit):
            return False
        alone = not (self._running or self._leaving or self.in_flight or self.transferring)
        if not self.residency.admit(request, limit, alone):
            return False
        self.restores.forget(request)
        return True

    def _finish(self, request: Request, reason: Literal["stop", "length", "cancelled"]) -> None:
        """The request ends; its last state becomes a checkpoint when it ran."""
        admitted = request.phase in (Phase.PREFILLING, Phase.DECODING)
        del self._by_id[request.id]
        if admitted:
            self._running.remove(request)
            self._depart(request)
        elif request.phase is Phase.LEAVING:
            request.returns = False  # preempted
        else:
            request.phase = Phase.ENDED
        self._listener.finished(request, reason)

    def _depart(self, request: Request) -> None:
        request.phase = Phase.LEAVING
        self._leaving.append(request)
        request.capture_due = bool(self._budget)
        if not request.capture_due:
            self._leave(request)

    def _leave(self, request: Request) -> None:
        """Everything that could be kept is; a preempted request waits again."""
        self._leaving.remove(request)
        self._release(request)
        if request.returns:
            request.reset()
            request.phase = Phase.WAITING
            self._waiting.prepend(request)

    def _drop(self, request: Request) -> None:
        """End without a checkpoint."""
        del self._by_id[request.id]
        if request.phase in (Phase.PREFILLING, Phase.DECODING):
            self._running.remove(request)
            self._release(request)
        elif request.phase is Phase.WAITING:
            self.restores.forget(request)
            request.phase = Phase.ENDED

    def _release(self, request: Request) -> None:
        """Blocks become free when the last submitted frame is done with them."""
        request.phase = Phase.ENDED
        request.capture_due = False
        self.residency.release(request)
        self._admission_due = True

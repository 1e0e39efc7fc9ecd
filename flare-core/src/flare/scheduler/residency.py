"""What an admitted request holds: a slot, pages, and the checkpoint it continues from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flare.cache import Checkpoint, CheckpointTree, PagePool, RowPool, SlotPool, SnapshotStorage
from flare.contract import PreparedContract, ProgramKind, ValueSource
from flare.scheduler.plan import Capture
from flare.scheduler.request import Request


@dataclass(slots=True)
class PrefixCounts:
    """First admissions looked up, those that found something, and their tokens; captures without storage."""

    queries: int = 0
    hits: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    skipped: int = 0

    def admitted(self, prompt_length: int, reused: int) -> None:
        """A request was admitted for the first time with `reused` tokens restored."""
        self.queries += 1
        self.hits += reused > 0
        self.query_tokens += prompt_length
        self.hit_tokens += reused


class Residency:
    """Slots, pages and checkpoints of one core, as requests take and give them.

    A request that can grow reserves its history and one page of output, and grows a page ahead; a core whose
    programs cannot append pages, or cannot be restarted in the middle of an output, makes requests reserve
    everything they can ever need, and so do requests with images, which are never preempted.
    """

    def __init__(self, contract: PreparedContract) -> None:
        self.pages = PagePool(contract.capacities.pages, contract.page.page_tokens)
        self.slots = SlotPool(contract.capacities)
        self.rows = RowPool(contract.capacities)
        self.tree = CheckpointTree(self.pages, self.rows)
        self.prefix = PrefixCounts()
        self.grows = all(
            _binds(contract, kind, source)
            for kind, source in (
                (ProgramKind.DECODE, ValueSource.PAGE_UPDATES),
                (ProgramKind.SPECULATIVE, ValueSource.PAGE_UPDATES),
                (ProgramKind.START, ValueSource.OUTPUT_LENGTH),
            )
        )

    def retire(self, frame: int) -> bool:
        """Every frame up to `frame` ended on the device; whether that may have freed anything."""
        waited = False
        for pool in (self.pages, self.slots, self.rows):
            waited = waited or pool.fenced > 0
            pool.retire(frame)
        return waited

    def admit(self, request: Request, limit: int, alone: bool) -> bool:
        """Take a slot, and pages behind the longest checkpoint of at most `limit` tokens of the request's
        history; or nothing.

        With `alone`, when nothing else will ever free a page, a checkpoint whose own tail page stands in the
        way is not continued from.
        """
        if not self.slots.free:
            return False
        base = self.tree.find(request.identity, limit)
        if not self._take_pages(request, base) and not (
            alone and base is not None and self._take_pages(request, None)
        ):
            return False
        slot = self.slots.take()
        assert slot is not None
        request.slot = slot
        return True

    def grow(self, request: Request, width: int = 1, most: int = 1) -> None:
        """More pages when the next step, of up to `width` tokens, comes within a page of the end. They are
        left in `request.page_updates` for the plan that tells the device, which takes `most` at a time."""
        final = self.pages.pages_for(request.most_consumed)
        wanted = min((request.consumed + width - 1) // self.pages.page_tokens + 2, final)
        while len(request.page_updates) < most and len(request.pages) < wanted:
            if not self.tree.make_room(1, request.standing):
                break
            page = self.pages.allocate(1)
            assert page is not None
            request.page_updates.append((len(request.pages), page[0]))
            request.pages.extend(page)

    def room(self, request: Request, most: int = 1) -> int:
        """Tokens that the next step has pages for, when its program can append `most` pages."""
        untold = max(len(request.page_updates) - most, 0)
        return (len(request.pages) - untold) * self.pages.page_tokens - request.consumed

    def detach(self, request: Request) -> bool:
        """Let the request own the state it continues from, so that the checkpoint's own copies of a row and a
        tail page come back. For a request that stands alone: nobody else holds the checkpoint."""
        base = request.base
        if base is None or base.pins > 1 or base.children:
            return False
        request.base = self.tree.absorb(base, request.last_frame)
        request.shared -= len(base.pages)
        return True

    def reserve_snapshot(self, request: Request, tokens: int, last: bool) -> Capture | None:
        """Storage for the request's state after `tokens` tokens, unless that is published already."""
        known = self.tree.lookup(request.identity, tokens)
        if known is not None:
            self.tree.touch(known)
            self.tree.claim(known, request.standing)
            return None
        tail = tokens % self.pages.page_tokens
        storage = self.tree.reserve(aligned=last or not tail, standing=request.standing)
        if storage is None:
            self.prefix.skipped += 1
            return None
        if last and tail:
            # Nobody else will write it: the live tail page itself is kept.
            page = request.pages.pop(tokens // self.pages.page_tokens)
            storage = SnapshotStorage(storage.row, page)
        return Capture(request, tokens, storage, last)

    def publish(self, capture: Capture, frame: int) -> Checkpoint | None:
        """The snapshot of frame `frame` is complete: others may continue from it, and its request does.
        Returns it unless an equal one was there."""
        request, complete = capture.request, capture.tokens // self.pages.page_tokens
        checkpoint = self.tree.publish(
            request.identity,
            capture.tokens,
            request.base,
            request.pages[request.shared : complete],
            capture.storage,
            frame,
            request.standing,
        )
        if checkpoint is not None:
            self.tree.pin(checkpoint)
            self._unpin(request)
            request.base, request.shared = checkpoint, complete
        return checkpoint

    def abandon(self, capture: Capture, frame: int) -> None:
        """A snapshot that will not be published."""
        self.tree.release(capture.storage, frame)

    def release(self, request: Request) -> None:
        """Give everything back; blocks become free when the last submitted frame is done with them."""
        self.pages.release(request.pages[request.shared :], request.last_frame)
        self._unpin(request)
        self.slots.release((request.slot.index,), request.last_frame)

    def _unpin(self, request: Request) -> None:
        if request.base is not None:
            self.tree.unpin(request.base, request.last_frame)
            request.base = None

    def could_continue(self, request: Request, tokens: int) -> bool:
        """Whether the request could continue from a checkpoint of `tokens` tokens if it had all pages to
        itself: the checkpoint's own tail page comes on top of the request's."""
        return self._wanted(request) + (tokens % self.pages.page_tokens > 0) <= self.pages.total

    def _wanted(self, request: Request) -> int:
        """Pages of an admission, shared ones included."""
        wanted = self.pages.pages_for(request.prompt_length + request.max_tokens)
        if self.grows and not request.spec.images:
            wanted = min(wanted, self.pages.pages_for(request.input_length) + 1)
        return wanted

    def _take_pages(self, request: Request, base: Checkpoint | None) -> bool:
        shared: Sequence[int] = ()
        if base is not None:
            self.tree.pin(base)
            shared = base.chain()
        private = self._wanted(request) - len(shared)
        pages = self.pages.allocate(private) if self.tree.make_room(private, request.standing) else None
        if pages is None:
            if base is not None:
                self.tree.unpin(base, base.fence)
            return False
        if base is not None:
            self.tree.claim(base, request.standing)
        request.base, request.shared = base, len(shared)
        request.pages = [*shared, *pages]
        return True


def _binds(contract: PreparedContract, kind: ProgramKind, source: ValueSource) -> bool:
    programs = contract.of_kind(kind)
    return all(source in {binding.source for binding in program.bindings} for program in programs)

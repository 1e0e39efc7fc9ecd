"""Restorations: checkpoints that come back from a tier, and the requests that wait for them.

A waiting request whose history is longer in a tier than on the device gets a ticket before it is admitted:
pages and a snapshot row of their own, reserved first. Requests for which the same checkpoint will do join the
ticket. When the transfer ends well an ordinary checkpoint is published; otherwise the storage goes back. Then
the waiters are looked at like any other. A request begins one restoration per admission at most, and a failed
one makes it take what the device has, so that waiting ends.

Each waiter has a free slot kept for it: nothing is brought back for a request that could not run.
"""

from __future__ import annotations

from flare.cache import Checkpoint
from flare.scheduler.request import Request
from flare.scheduler.residency import Residency
from flare.scheduler.tiers import Stored, Ticket, Tiers


class Restores:
    """Tickets of one scheduler."""

    def __init__(self, residency: Residency, tiers: Tiers | None) -> None:
        self._residency = residency
        self._tiers = tiers
        self._tickets: list[Ticket] = []
        self._waits: dict[Request, Ticket] = {}
        self._settled: set[Request] = set()  # began or lost a restoration since they last ran

    @property
    def active(self) -> int:
        """Transfers on their way."""
        return len(self._tickets)

    def waits(self, request: Request, limit: int) -> bool:
        """Whether `request` has to wait for a restoration of at most `limit` tokens of its history, which may
        begin now; or for a slot that no other waiter has been promised."""
        if request in self._waits:
            return True
        residency = self._residency
        if residency.slots.free <= len(self._waits):
            return True
        if self._tiers is None or not limit or request in self._settled:
            return False
        base = residency.tree.find(request.identity, limit)
        above = 0 if base is None else base.tokens
        ticket = self._joinable(request, limit, above)
        if ticket is None:
            stored = self._tiers.lookup(request.identity, limit, above)
            if stored is None or not residency.could_continue(request, stored.tokens):
                return False
            ticket = self._reserve(request, base, stored)
            if ticket is None:
                # A row that only waits for a frame in flight is worth waiting for.
                return not residency.rows.free and residency.rows.fenced > 0
            self._settled.add(request)
            self._tickets.append(ticket)
            self._tiers.restore(ticket)
        ticket.waiters.add(request)
        self._waits[request] = ticket
        return True

    def forget(self, request: Request) -> None:
        """The request runs, or has ended. Its ticket, if any, goes on without it."""
        self._settled.discard(request)
        ticket = self._waits.pop(request, None)
        if ticket is not None:
            ticket.waiters.discard(request)

    def complete(self, ticket: Ticket, restored: bool) -> Checkpoint | None:
        """The transfer ended; with `restored`, every byte is in place. Returns the published checkpoint, None
        when there is none or an equal one was there already."""
        tree, pages = self._residency.tree, self._residency.pages
        self._tickets.remove(ticket)
        published = None
        if restored:
            published = tree.publish(
                ticket.identity,
                ticket.stored.tokens,
                ticket.parent,
                ticket.pages,
                ticket.storage,
                0,
                ticket.standing,
            )
        else:
            tree.release(ticket.storage, 0)
        if published is None:
            pages.release(ticket.pages, 0)
        if ticket.parent is not None:
            tree.unpin(ticket.parent, 0)
        for request in ticket.waiters:
            del self._waits[request]
            if not restored:
                self._settled.add(request)
        return published

    def _joinable(self, request: Request, limit: int, above: int) -> Ticket | None:
        best = None
        for ticket in self._tickets:
            tokens = ticket.stored.tokens
            if above < tokens <= limit and request.identity.key(tokens) == ticket.identity.key(tokens):
                best, above = ticket, tokens
        return best

    def _reserve(self, request: Request, base: Checkpoint | None, stored: Stored) -> Ticket | None:
        tree, pages = self._residency.tree, self._residency.pages
        size = pages.page_tokens
        shared = 0
        if base is not None:
            tree.pin(base)
            shared = base.tokens // size
        count = stored.tokens // size - shared
        standing = request.standing
        own = pages.allocate(count) if tree.make_room(count, standing) else None
        storage = None if own is None else tree.reserve(stored.tokens % size == 0, standing)
        if own is not None and storage is not None:
            return Ticket(request.identity, stored, base, own, storage, standing=standing)
        if own is not None:
            pages.release(own, 0)
        if base is not None:
            tree.unpin(base, 0)
        return None

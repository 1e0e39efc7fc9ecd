"""Transfers between the device and the stores behind it, on two threads beside the engine's own.

One thread restores, one saves, so that a request never waits for a copy that nobody needs yet. Results come
back through `ended`, in the engine's thread; `wake` says from the other threads that there are some.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast

import msgspec

from flare.cache import Checkpoint, PrefixIdentity
from flare.cache.stores import Entry, Reading, Source, Store, StoreFault, describe
from flare.contract import Region
from flare.device.base import Bytes, Device
from flare.engine.messages import Stats, StoreStats
from flare.scheduler import Saving, Ticket

logger = logging.getLogger("flare.cache")


@dataclass(frozen=True, slots=True)
class Found:
    """See `flare.scheduler.Stored`."""

    store: Store
    entry: Entry

    @property
    def tokens(self) -> int:
        """Length of the prefix."""
        return self.entry.tokens


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """See `flare.cache.stores.Source`: a checkpoint on the device, which stays there meanwhile."""

    device: Device
    checkpoint: Checkpoint
    pages: Sequence[int]

    def page(self, index: int) -> Bytes:
        """See `Source.page`."""
        return self._read(Region.PAGES, self.pages[index])

    def tail(self) -> Bytes:
        """See `Source.tail`."""
        page = self.checkpoint.storage.tail_page
        assert page is not None
        return self._read(Region.PAGES, page)

    def row(self) -> Bytes:
        """See `Source.row`."""
        return self._read(Region.ROWS, self.checkpoint.storage.row)

    def _read(self, region: Region, block: int) -> Bytes:
        return cast(Bytes, self.device.read_blocks(region, (block,))[0])


@dataclass(slots=True)
class TransferCounts:
    """Ends of transfers since start."""

    restores: int = 0
    restored_tokens: int = 0
    failed_restores: int = 0
    saves: int = 0


@dataclass(slots=True)
class TierTransfers:
    """See `flare.scheduler.Tiers`. `stores` are asked and filled in order, the nearest first.

    `restoring` and `saving` run what takes long; tests pass executors of their own.
    """

    device: Device
    stores: Sequence[Store]
    wake: Callable[[], None] = lambda: None
    restoring: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "cache-restore"))
    saving: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "cache-save"))
    counts: TransferCounts = field(default_factory=TransferCounts)
    _ended: deque[tuple[Ticket, bool] | Saving] = field(default_factory=deque)
    _begun: int = 0  # saves; counted in the engine's thread
    _finished: int = 0  # saves, farther stores included; counted in the saving thread
    _closing: bool = False

    def lookup(self, identity: PrefixIdentity, limit: int, above: int) -> Found | None:
        """See `Tiers.lookup`; of equally long ones the nearest."""
        found = None
        for store in self.stores:
            if (entry := store.lookup(identity, limit, above)) is not None:
                found, above = Found(store, entry), entry.tokens
        return found

    def restore(self, ticket: Ticket) -> None:
        """See `Tiers.restore`."""
        found = cast(Found, ticket.stored)
        # Kept from now on, so that nothing saved meanwhile takes its place.
        reading = found.store.reading(found.entry)
        if reading is None:
            # It went since the lookup; a farther store may have it.
            other = self.lookup(ticket.identity, found.tokens, found.tokens - 1)
            if other is not None:
                found = ticket.stored = other
                reading = other.store.reading(other.entry)
        found.store.counts.hits += 1
        self.restoring.submit(self._restore, ticket, reading)

    def save(self, saving: Saving) -> None:
        """See `Tiers.save`."""
        self._begun += 1
        self.saving.submit(self._save, saving)

    def ended(self) -> list[tuple[Ticket, bool] | Saving]:
        """Transfers that ended since the last call: tickets with whether all bytes are in place, and saves
        that are done with the device."""
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        for each in ended:
            if isinstance(each, Saving):
                self.counts.saves += 1
            elif each[1]:
                self.counts.restores += 1
                self.counts.restored_tokens += each[0].stored.tokens
            else:
                self.counts.failed_restores += 1
        return ended

    def completed(self, stats: Stats) -> Stats:
        """`stats` with what is known here."""
        counts = self.counts
        return msgspec.structs.replace(
            stats,
            stores=tuple(_store_stats(store) for store in self.stores),
            restores=counts.restores,
            restored_tokens=counts.restored_tokens,
            failed_restores=counts.failed_restores,
        )

    @property
    def writing(self) -> bool:
        """Whether something is still on its way to a store."""
        return self._begun > self._finished

    def close(self) -> None:
        """Give up what has not begun, wait for the rest, close the stores. Idempotent."""
        self._closing = True
        for executor in (self.restoring, self.saving):
            executor.shutdown(wait=True, cancel_futures=True)
        for store in self.stores:
            store.close()

    # On the threads.

    def _restore(self, ticket: Ticket, reading: Reading | None) -> None:
        restored = False
        try:
            if reading is None:
                raise StoreFault("the entry is gone")
            with reading:
                self._fill(ticket, reading)
            restored = True
        except StoreFault as fault:
            logger.warning("a restoration of %d tokens failed: %s", ticket.stored.tokens, fault)
        except Exception:
            logger.exception("a restoration of %d tokens failed", ticket.stored.tokens)
        self._end((ticket, restored))

    def _fill(self, ticket: Ticket, reading: Reading) -> None:
        storage, write = ticket.storage, self.device.write_blocks
        write(Region.ROWS, (storage.row,), reading.row()[None])
        if storage.tail_page is not None:
            write(Region.PAGES, (storage.tail_page,), reading.tail()[None])
        first = cast(Found, ticket.stored).entry.tokens // self.device.contract.page.page_tokens
        first -= len(ticket.pages)
        for number, page in enumerate(ticket.pages, first):
            if self._closing:
                raise StoreFault("the engine ends")
            write(Region.PAGES, (page,), reading.page(number)[None])

    def _save(self, saving: Saving) -> None:
        tokens, device_done = saving.checkpoint.tokens, False
        try:
            entry = describe(saving.identity, tokens, self.device.contract.page.page_tokens)
            source: Source = DeviceSource(self.device, saving.checkpoint, saving.pages)
            with ExitStack() as held:
                for store in self.stores:
                    if not store.put(entry, source) or device_done or store is self.stores[-1]:
                        continue
                    # What a nearer store has, farther ones copy from there.
                    if (reading := store.reading(entry)) is not None:
                        source = held.enter_context(reading)
                        device_done = True
                        self._end(saving)
        except Exception:
            logger.exception("a checkpoint of %d tokens was not kept", tokens)
        self._finished += 1
        if device_done:
            self.wake()
        else:
            self._end(saving)

    def _end(self, end: tuple[Ticket, bool] | Saving) -> None:
        self._ended.append(end)
        self.wake()


def _store_stats(store: Store) -> StoreStats:
    counts = store.counts
    return StoreStats(
        name=store.name,
        capacity_bytes=store.capacity,
        bytes=store.used,
        entries=len(store),
        hits=counts.hits,
        stored=counts.stored,
        evicted=counts.evicted,
        refused=counts.refused,
        failed=counts.failed,
        faults=counts.faults,
    )

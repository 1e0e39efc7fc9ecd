"""The index of a store: which entries there are, which pages they share, what they weigh, who goes next.

It holds no state bytes. A store that writes an entry announces it (`begin`), which makes room by dropping the
least recently used entries, and finishes with `commit` or `abandon`; only one entry is written at a time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flare.cache.endpoints import Endpoints
from flare.cache.identity import PrefixIdentity
from flare.cache.stores.base import Entry, StoreCounts


@dataclass(frozen=True, slots=True)
class Dropped:
    """Entries that are gone, and the pages that nothing refers to any more."""

    entries: list[Entry] = field(default_factory=list)
    pages: list[bytes] = field(default_factory=list)


class StoreIndex:
    """Thread-safe; every call takes microseconds, or as long as what it drops is numerous. A page weighs
    `page_bytes`, the rest of an entry what `rest_bytes` says, framing included."""

    def __init__(
        self, page_bytes: int, rest_bytes: Callable[[Entry], int], capacity: int, counts: StoreCounts
    ) -> None:
        self._page_bytes = page_bytes
        self._rest_bytes = rest_bytes
        self._capacity = capacity
        self._counts = counts
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()  # least recently used first
        self._endpoints: Endpoints[Entry] = Endpoints()
        self._pages: dict[bytes, int] = {}  # how many entries refer to each, the one being written included
        self._pins: dict[bytes, int] = {}
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes of everything."""
        return self._used

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """Every entry, the least recently used first."""
        with self._lock:
            return list(self._entries.values())

    def lookup(self, identity: PrefixIdentity, limit: int, above: int) -> Entry | None:
        """See `Store.lookup`."""
        with self._lock:
            return self._endpoints.longest(identity, limit, above)

    def pin(self, entry: Entry) -> bool:
        """Keep `entry` until unpinned, and count it as used; False when it is not there."""
        with self._lock:
            name = entry.name
            if name not in self._entries:
                return False
            self._pins[name] = self._pins.get(name, 0) + 1
            self._entries.move_to_end(name)
            return True

    def unpin(self, entry: Entry) -> None:
        """End one `pin`."""
        with self._lock:
            name = entry.name
            self._pins[name] -= 1
            if not self._pins[name]:
                del self._pins[name]

    def touch(self, entry: Entry) -> bool:
        """Count `entry` as used; False when it is not there."""
        with self._lock:
            if entry.name not in self._entries:
                return False
            self._entries.move_to_end(entry.name)
            return True

    def begin(self, entry: Entry) -> tuple[frozenset[bytes] | None, Dropped]:
        """Make room for `entry`, which is not there yet. Returns the pages to be written, None when it does
        not fit, and what was dropped on the way in either case."""
        dropped = Dropped()
        with self._lock:
            missing = frozenset(name for name in entry.pages if name not in self._pages)
            needed = len(missing) * self._page_bytes + self._rest_bytes(entry)
            if needed <= self._capacity:
                # What is there and shared must not be dropped to make room for the rest.
                self._refer(entry.pages)
                self._used += needed
                while self._used > self._capacity and self._drop_oldest(dropped):
                    pass
                if self._used <= self._capacity:
                    return missing, dropped
                self._release(entry, dropped)
            self._counts.refused += 1
            return None, dropped

    def commit(self, entry: Entry) -> bool:
        """The announced entry is complete. False when a page it shares was found damaged meanwhile: it can
        only be abandoned."""
        with self._lock:
            if all(name in self._pages for name in entry.pages):
                self._insert(entry)
                self._counts.stored += 1
                return True
        return False

    def abandon(self, entry: Entry) -> Dropped:
        """The announced entry will not be complete."""
        dropped = Dropped()
        with self._lock:
            self._release(entry, dropped)
        return dropped

    def add(self, entry: Entry) -> None:
        """An entry that is complete with all its pages already, as most recently used; it may exceed the
        capacity until `shrink`."""
        with self._lock:
            self._used += self._page_bytes * sum(name not in self._pages for name in entry.pages)
            self._used += self._rest_bytes(entry)
            self._refer(entry.pages)
            self._insert(entry)

    def shrink(self) -> Dropped:
        """Drop what exceeds the capacity."""
        dropped = Dropped()
        with self._lock:
            while self._used > self._capacity and self._drop_oldest(dropped):
                pass
        return dropped

    def discard(self, entry: Entry) -> Dropped:
        """`entry` turned out to be damaged."""
        dropped = Dropped()
        with self._lock:
            if entry.name in self._entries:
                self._drop(entry, dropped)
                self._counts.faults += 1
        return dropped

    def discard_page(self, page: bytes) -> Dropped:
        """A page turned out to be damaged, and with it every entry that refers to it."""
        dropped = Dropped()
        with self._lock:
            if self._pages.pop(page, None) is not None:
                self._used -= self._page_bytes
                dropped.pages.append(page)
            for entry in [entry for entry in self._entries.values() if page in entry.pages]:
                self._drop(entry, dropped)
                self._counts.faults += 1
        return dropped

    def _insert(self, entry: Entry) -> None:
        self._entries[entry.name] = entry
        self._endpoints.add(entry.key, entry)

    def _drop_oldest(self, dropped: Dropped) -> bool:
        for name, entry in self._entries.items():
            if name not in self._pins:
                self._drop(entry, dropped)
                self._counts.evicted += 1
                return True
        return False

    def _drop(self, entry: Entry, dropped: Dropped) -> None:
        del self._entries[entry.name]
        self._endpoints.remove(entry.key)
        dropped.entries.append(entry)
        self._release(entry, dropped)

    def _refer(self, pages: Sequence[bytes]) -> None:
        for page in pages:
            self._pages[page] = self._pages.get(page, 0) + 1

    def _release(self, entry: Entry, dropped: Dropped) -> None:
        self._used -= self._rest_bytes(entry)
        for page in entry.pages:
            references = self._pages.get(page)
            if references == 1:
                del self._pages[page]
                self._used -= self._page_bytes
                dropped.pages.append(page)
            elif references is not None:  # otherwise it was damaged and went before
                self._pages[page] = references - 1

"""Checkpoints in host memory: the nearest tier. Gone with the process."""

from __future__ import annotations

import threading
from typing import Self

from flare.cache.identity import PrefixIdentity
from flare.cache.stores.base import Bytes, Entry, Source, StoreCounts, StoreFault
from flare.cache.stores.core import CoreState
from flare.cache.stores.index import Dropped, StoreIndex
from flare.errors import CacheError


class HostStore:
    """See `Store`. Raises CacheError when `capacity` bytes cannot hold any checkpoint of the core."""

    def __init__(self, core: CoreState, capacity: int) -> None:
        smallest = core.page_bytes + core.row_bytes
        if capacity < smallest:
            raise CacheError(
                f"a host cache of {capacity} bytes holds no checkpoint of this core: a page and a row take "
                f"{smallest} bytes",
                field="host_cache",
            )
        self.name = "host"
        self.capacity = capacity
        self.counts = StoreCounts()
        self._index = StoreIndex(
            core.page_bytes,
            lambda entry: core.row_bytes + entry.tail * core.page_bytes,
            capacity,
            self.counts,
        )
        self._writing = threading.Lock()
        self._pages: dict[bytes, Bytes] = {}
        self._rests: dict[bytes, tuple[Bytes, Bytes | None]] = {}  # row and tail, by entry name

    @property
    def used(self) -> int:
        """See `Store.used`."""
        return self._index.used

    def __len__(self) -> int:
        return len(self._index)

    def lookup(self, identity: PrefixIdentity, limit: int, above: int = 0) -> Entry | None:
        """See `Store.lookup`."""
        return self._index.lookup(identity, limit, above)

    def reading(self, entry: Entry) -> HostReading | None:
        """See `Store.reading`."""
        return HostReading(self, entry) if self._index.pin(entry) else None

    def put(self, entry: Entry, source: Source) -> bool:
        """See `Store.put`."""
        with self._writing:
            if self._index.touch(entry):
                return True
            missing, dropped = self._index.begin(entry)
            self._forget(dropped)
            if missing is None:
                return False
            try:
                for number, name in enumerate(entry.pages):
                    if name in missing:
                        self._pages[name] = source.page(number)
                self._rests[entry.name] = source.row(), source.tail() if entry.tail else None
            except BaseException:
                self._rests.pop(entry.name, None)
                self._forget(self._index.abandon(entry))
                raise
            committed = self._index.commit(entry)
            assert committed, "pages in memory are never discarded"
            return True

    def close(self) -> None:
        """See `Store.close`."""
        self._pages.clear()
        self._rests.clear()

    def _forget(self, dropped: Dropped) -> None:
        for entry in dropped.entries:
            del self._rests[entry.name]
        for page in dropped.pages:
            self._pages.pop(page, None)  # of an abandoned entry not all were there


class HostReading:
    """See `Reading`. Memory does not decay: nothing is verified."""

    def __init__(self, store: HostStore, entry: Entry) -> None:
        self._store = store
        self._entry = entry
        self._open = True

    def page(self, index: int) -> Bytes:
        """See `Source.page`."""
        page = self._store._pages.get(self._entry.pages[index])
        if page is None:
            raise StoreFault("the host cache was closed")
        return page

    def tail(self) -> Bytes:
        """See `Source.tail`."""
        _, tail = self._rest()
        assert tail is not None
        return tail

    def row(self) -> Bytes:
        """See `Source.row`."""
        row, _ = self._rest()
        return row

    def close(self) -> None:
        """See `Reading.close`."""
        if self._open:
            self._open = False
            self._store._index.unpin(self._entry)

    def _rest(self) -> tuple[Bytes, Bytes | None]:
        rest = self._store._rests.get(self._entry.name)
        if rest is None:
            raise StoreFault("the host cache was closed")
        return rest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

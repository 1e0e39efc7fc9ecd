"""Checkpoints on disk: the tier that survives a restart.

    DIRECTORY/CORE/lock              held by the one process that uses it
    DIRECTORY/CORE/pages/NAME        one complete page each, shared by the entries that refer to it
    DIRECTORY/CORE/entries/NAME      tail page and row of one entry, and which pages it needs

CORE is the identity of the core's state (`flare.cache.stores.core`), NAME the name of a prefix in hex. A file
is written under a temporary name and renamed, pages before the entry that refers to them, entries removed
before their pages: whatever moment a process is killed at, an entry that is there has its pages, or the next
process removes it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from flare.cache.identity import PrefixIdentity
from flare.cache.stores import frame
from flare.cache.stores.base import NAME_BYTES, Bytes, Entry, Source, StoreCounts, StoreFault, prefix_name
from flare.cache.stores.core import CoreState
from flare.cache.stores.directory import CoreDirectory
from flare.cache.stores.index import Dropped, StoreIndex
from flare.errors import CacheError

logger = logging.getLogger("flare.cache")

_FRAMING = 512  # more than magic, lengths, digests and the fixed part of a header take


class DiskStore:
    """See `Store`. Raises CacheError when the directory cannot be used, because of what it is, or because
    another process serves the same core with it."""

    def __init__(self, directory: Path, core: CoreState, capacity: int) -> None:
        smallest = 2 * _FRAMING + core.page_bytes + core.row_bytes
        if capacity < smallest:
            raise CacheError(
                f"a disk cache of {capacity} bytes holds no checkpoint of this core: a page and a row take "
                f"{smallest} bytes",
                field="disk_cache_size",
            )
        self.name = "disk"
        self.capacity = capacity
        self.counts = StoreCounts()
        self._core = core
        self._directory = CoreDirectory(directory, core.identity, capacity)
        self._writing = threading.Lock()  # entries are written and removed by one thread at a time
        self._complaining = False
        self._index = StoreIndex(_FRAMING + core.page_bytes, self._rest_bytes, capacity, self.counts)
        try:
            self._scan()
        except OSError as error:
            self._directory.close()
            raise CacheError(f"the disk cache cannot be read: {error}", field="disk_cache") from error

    @property
    def used(self) -> int:
        """See `Store.used`."""
        return self._index.used

    def __len__(self) -> int:
        return len(self._index)

    def lookup(self, identity: PrefixIdentity, limit: int, above: int = 0) -> Entry | None:
        """See `Store.lookup`."""
        return self._index.lookup(identity, limit, above)

    def reading(self, entry: Entry) -> DiskReading | None:
        """See `Store.reading`."""
        return DiskReading(self, entry) if self._index.pin(entry) else None

    def put(self, entry: Entry, source: Source) -> bool:
        """See `Store.put`. A disk that cannot be written to is logged and counted, and nothing else."""
        with self._writing:
            if self._index.touch(entry):
                return True
            missing, dropped = self._index.begin(entry)
            self._unlink(dropped)
            if missing is None:
                return False
            try:
                for number, name in enumerate(entry.pages):
                    if name in missing:
                        self._write(self._page_path(name), name, [source.page(number)])
                rest = [source.tail(), source.row()] if entry.tail else [source.row()]
                self._write(self._entry_path(entry), entry.name, rest, entry)
                if self._index.commit(entry):
                    self._complaining = False
                    return True
                self._entry_path(entry).unlink(missing_ok=True)
            except OSError as error:
                self.counts.failed += 1
                if not self._complaining:
                    self._complaining = True
                    logger.warning("the disk cache cannot be written: %s; serving goes on without it", error)
            except BaseException:
                self._unlink(self._index.abandon(entry))
                raise
            self._unlink(self._index.abandon(entry))
            return False

    def close(self) -> None:
        """See `Store.close`."""
        self._directory.close()

    # Files.

    def _rest_bytes(self, entry: Entry) -> int:
        names = len(entry.key[1]) + NAME_BYTES * len(entry.pages)
        return _FRAMING + names + self._core.row_bytes + entry.tail * self._core.page_bytes

    def _page_path(self, name: bytes) -> Path:
        return self._directory.pages / name.hex()

    def _entry_path(self, entry: Entry) -> Path:
        return self._directory.entries / entry.name.hex()

    def _write(self, path: Path, name: bytes, payload: Sequence[Bytes], entry: Entry | None = None) -> None:
        frame.write(path, frame.header_of(self._core.identity, name, payload, entry), payload)

    def _unlink(self, dropped: Dropped) -> None:
        paths = [self._entry_path(entry) for entry in dropped.entries]
        for path in (*paths, *map(self._page_path, dropped.pages)):
            with contextlib.suppress(OSError):
                _remove(path)

    def _scan(self) -> None:
        """Rebuild the index from the headers of entries and the sizes of pages; remove what is broken."""
        page_file_bytes = frame.page_file_bytes(self._core.identity, self._core.page_bytes)
        pages: set[bytes] = set()
        with os.scandir(self._directory.pages) as files:
            for file in files:
                name = _name(file.name)
                if name is not None and file.stat(follow_symlinks=False).st_size == page_file_bytes:
                    pages.add(name)
        found: list[tuple[float, Entry]] = []
        problems: dict[str, int] = {}
        with os.scandir(self._directory.entries) as files:
            listed = [(file.name, file.stat(follow_symlinks=False).st_mtime) for file in files]
        for file_name, used in listed:
            try:
                entry = self._known(file_name, pages)
            except StoreFault as fault:
                problems[str(fault)] = problems.get(str(fault), 0) + 1
                _remove(self._directory.entries / file_name)
            else:
                found.append((used, entry))
        for _, entry in sorted(found, key=lambda each: each[0]):
            self._index.add(entry)
        self._unlink(self._index.shrink())
        wanted = {page for entry in self._index.entries() for page in entry.pages}
        with os.scandir(self._directory.pages) as files:
            for file in files:
                if _name(file.name) not in wanted:
                    _remove(Path(file.path))
        if problems:
            what = ", ".join(f"{count} {problem}" for problem, count in sorted(problems.items()))
            logger.warning("disk cache %s: removed entries: %s", self._directory.path, what)

    def _known(self, file_name: str, pages: set[bytes]) -> Entry:
        """The entry in a file. Raises StoreFault saying what is wrong with it."""
        if file_name.endswith(".tmp"):
            raise StoreFault("unfinished")
        try:
            with open(self._directory.entries / file_name, "rb", buffering=0) as file:
                header = frame.read_header(file)
        except OSError as error:
            raise StoreFault("unreadable") from error
        entry = self._entry(header)
        if entry.name.hex() != file_name:
            raise StoreFault("foreign")
        if not pages.issuperset(entry.pages):
            raise StoreFault("incomplete")
        return entry

    def _entry(self, header: frame.Header) -> Entry:
        core, names = self._core, header.pages
        complete, rest = divmod(header.tokens, core.page_tokens)
        fits = (
            header.core == core.identity
            and header.key is not None
            and header.name == prefix_name(header.key, header.tokens)
            and header.tail == (rest > 0)
            and len(names) == complete * NAME_BYTES
            and header.nbytes == core.row_bytes + header.tail * core.page_bytes
        )
        if not fits or header.key is None:
            raise StoreFault("foreign")
        split = tuple(names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES))
        return Entry(header.key, header.tokens, split, header.tail)

    # What readers find.

    def _read(self, path: Path, name: bytes, nbytes: int) -> Bytes:
        try:
            with open(path, "rb", buffering=0) as file:
                header = frame.read_header(file)
                if (header.core, header.name, header.nbytes) != (self._core.identity, name, nbytes):
                    raise StoreFault("foreign")
                return frame.read_payload(file, header)
        except OSError as error:
            raise StoreFault(f"unreadable ({error.strerror})") from error

    def _read_page(self, name: bytes) -> Bytes:
        try:
            return self._read(self._page_path(name), name, self._core.page_bytes)
        except StoreFault as fault:
            with self._writing:
                self._unlink(self._index.discard_page(name))
            raise StoreFault(f"disk cache: page {name.hex()} is {fault}") from fault

    def _read_rest(self, entry: Entry) -> Bytes:
        nbytes = self._core.row_bytes + entry.tail * self._core.page_bytes
        path = self._entry_path(entry)
        try:
            payload = self._read(path, entry.name, nbytes)
        except StoreFault as fault:
            with self._writing:
                self._unlink(self._index.discard(entry))
            raise StoreFault(f"disk cache: entry {entry.name.hex()} is {fault}") from fault
        with contextlib.suppress(OSError):
            os.utime(path)  # the order of use survives a restart
        return payload


class DiskReading:
    """See `Reading`."""

    def __init__(self, store: DiskStore, entry: Entry) -> None:
        self._store = store
        self._entry = entry
        self._rest: Bytes | None = None
        self._open = True

    def page(self, index: int) -> Bytes:
        """See `Source.page`."""
        return self._store._read_page(self._entry.pages[index])

    def tail(self) -> Bytes:
        """See `Source.tail`."""
        assert self._entry.tail
        return self._load()[: self._store._core.page_bytes]

    def row(self) -> Bytes:
        """See `Source.row`."""
        return self._load()[self._entry.tail * self._store._core.page_bytes :]

    def close(self) -> None:
        """See `Reading.close`."""
        if self._open:
            self._open = False
            self._store._index.unpin(self._entry)

    def _load(self) -> Bytes:
        if self._rest is None:
            self._rest = self._store._read_rest(self._entry)
        return self._rest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _name(file_name: str) -> bytes | None:
    try:
        name = bytes.fromhex(file_name)
    except ValueError:
        return None
    return name if len(name) == NAME_BYTES and name.hex() == file_name else None


def _remove(path: Path) -> None:
    """Raises OSError when something is left."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

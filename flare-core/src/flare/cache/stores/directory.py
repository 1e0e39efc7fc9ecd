"""A core's directory inside a disk cache: made private, owned by one process, and room made for it."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from pathlib import Path

from flare.errors import CacheError

logger = logging.getLogger("flare.cache")

_CORE = re.compile(r"[0-9a-f]{64}")


class CoreDirectory:
    """`pages` and `entries` of core `identity` below `root`, made when they are missing.

    Whoever can read them can read conversations: they are for their owner only. The lock ends with the
    process, however it ends. Directories of other cores that no process uses are removed, the longest unused
    first, until all of them fit into `capacity` bytes together. Raises CacheError.
    """

    def __init__(self, root: Path, identity: str, capacity: int) -> None:
        self.path = root / identity
        self.pages = self.path / "pages"
        self.entries = self.path / "entries"
        try:
            for path in (self.path, self.pages, self.entries):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _lock(self.path)
        except OSError as error:
            raise CacheError(
                f"{root} cannot be used as a disk cache: {error.strerror}; name a directory that can be "
                "written to",
                field="disk_cache",
            ) from error
        if lock is None:
            raise CacheError(
                f"{self.path} is in use by another process that serves this core; give each its own "
                "--disk-cache directory",
                field="disk_cache",
            )
        self._lock: int | None = lock
        os.utime(self.path)
        _make_room(root, self.path, capacity)

    def close(self) -> None:
        """Let another process have it. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(path: Path) -> int | None:
    """A descriptor that owns the directory, or None when another one does. Raises OSError."""
    while True:
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path / "lock")):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass  # the directory is being removed: the next attempt says so
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _make_room(root: Path, own: Path, capacity: int) -> None:
    cores = [path for path in root.iterdir() if _CORE.fullmatch(path.name) and path.is_dir()]
    sizes = {path: _size(path) for path in cores}
    total = sum(sizes.values())
    for path in sorted((p for p in cores if p != own), key=_last_used):
        if total <= capacity:
            return
        try:
            lock = _lock(path)
            if lock is None:
                continue
            shutil.rmtree(path)
            os.close(lock)
        except OSError as error:
            logger.warning("disk cache: %s cannot be removed: %s", path, error)
            continue
        total -= sizes[path]
        logger.warning("disk cache: removed %s, state of a core that is not in use", path)


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    total = 0
    for directory, _, files in os.walk(path):
        for file in files:
            try:
                total += os.lstat(os.path.join(directory, file)).st_size
            except OSError:
                continue  # written or removed at this moment
    return total

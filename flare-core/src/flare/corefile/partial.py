"""A file under a temporary name in the directory of its destination, published by one rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import secrets
from pathlib import Path

from flare.errors import CapacityError

SUFFIX = ".partial"


class Partial:
    """An open temporary file of `nbytes` zero bytes beside `path`, locked while its writer lives.

    Temporary files of writers that were killed are recognised by the missing lock and removed first: a
    crashed preparation must not leave a hundred gigabytes behind for ever. Raises CapacityError when the
    disk has too little room, FileNotFoundError when there is no such directory.
    """

    def __init__(self, path: Path, nbytes: int) -> None:
        self._target = path
        _remove_stale(path)
        disk = os.statvfs(path.parent)
        free = disk.f_bavail * disk.f_frsize
        if nbytes > free:
            raise CapacityError(
                f"{path} needs {nbytes} bytes, its disk has {free} free", field=str(path.parent)
            )
        self.fd, self._name = _create(path)
        try:
            os.ftruncate(self.fd, nbytes)
        except OSError:
            self.close()
            raise

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at byte `offset`. Raises CapacityError when the disk is full."""
        rest = memoryview(data)
        while rest:
            try:
                count = os.pwrite(self.fd, rest, offset)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise CapacityError(
                        f"no room left on the disk of {self._target}", field=str(self._target)
                    ) from error
                raise
            rest, offset = rest[count:], offset + count

    def publish(self) -> None:
        """Make the contents durable, then the name: a crash leaves the old destination or the new one."""
        os.fsync(self.fd)
        assert self._name is not None, "published twice"
        os.replace(self._name, self._target)
        self._name = None
        directory = os.open(self._target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Close, and remove the file unless it was published. Idempotent."""
        if self._name is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name)
            self._name = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _create(path: Path) -> tuple[int, Path | None]:
    while True:
        name = path.with_name(f"{path.name}.{secrets.token_hex(4)}{SUFFIX}")
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(fd, fcntl.LOCK_EX)
        # Another writer may have taken the file for stale between its creation and its lock.
        if os.fstat(fd).st_nlink:
            return fd, name
        os.close(fd)


def _remove_stale(path: Path) -> None:
    for name in path.parent.glob(f"{glob.escape(path.name)}.*{SUFFIX}"):
        with contextlib.suppress(OSError):
            fd = os.open(name, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name)
            finally:
                os.close(fd)

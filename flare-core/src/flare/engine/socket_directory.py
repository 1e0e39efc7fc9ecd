"""A private directory for one socket, and the removal of those whose owner was killed.

Abstract sockets would leave nothing behind, but every user of the machine may connect to one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "flare-engine-"
_LOCK = "owner"
_YOUNG_S = 60.0  # a directory without a lock file is about to get one, until it is this old


class SocketDirectory:
    """A new directory (mode 0700: nobody else can connect), locked while this process lives.

    The kernel drops the lock with the process, however it ends; directories of this user that nobody holds
    locked are removed when another is made.
    """

    def __init__(self) -> None:
        remove_abandoned()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if os.fstat(self._fd).st_nlink:
                return
            os.close(self._fd)  # taken for abandoned between its creation and its lock

    def remove(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1


def remove_abandoned() -> None:
    """Remove this user's directories that no living process holds."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid == os.getuid() and not directory.is_symlink():
                _remove_if_abandoned(directory)


def _remove_if_abandoned(directory: Path) -> None:
    try:
        fd = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        if time.time() - directory.stat().st_mtime > _YOUNG_S:
            shutil.rmtree(directory)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)
    finally:
        os.close(fd)

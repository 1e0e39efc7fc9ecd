"""What may wake an engine process that has nothing to do: its socket, a signal, or its parent's death."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

import zmq


class Wakeups:
    """Blocks until a command arrives, and notices SIGTERM and the end of the parent on the way.

    The parent holds the other end of standard input; end of file there means that it is gone, however it
    ended. SIGINT is ignored: a terminal sends it to the whole process group, and it is the front that
    decides whether to drain first. SIGTERM sets `terminated`.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.terminated = False
        self.orphaned = False
        self._socket = socket
        self._stdin = sys.stdin.fileno()
        self._signals, self._wakeup = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)
        self._poller = zmq.Poller()
        for source in (socket, self._stdin, self._signals):
            self._poller.register(source, zmq.POLLIN)

    def wait(self, block: bool) -> bool:
        """Whether a command can be received. With `block`, sleeps until anything happened."""
        ready = dict(self._poller.poll(None if block else 0))
        if self._signals in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._signals, 4096)
        if self._stdin in ready and not os.read(self._stdin, 4096):
            self.orphaned = True
        return self._socket in ready

    def wake(self) -> None:
        """End the sleep of `wait`, now or the next one. For other threads."""
        with contextlib.suppress(BlockingIOError):  # full: it wakes anyway
            os.write(self._wakeup, b"\0")

    def _terminate(self, signum: int, frame: FrameType | None) -> None:
        self.terminated = True

"""Finds whatever holds up an event loop.

Every callback of a watched loop is timed. Its own CPU time counts, so that a busy machine changes nothing,
less what garbage collection took (the pytest process is much larger than a server, which freezes what it
loaded). Wall time counts too, with a bound so generous that only a blocking call exceeds it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CPU_SECONDS = 0.020
WALL_SECONDS = 3.0
HELD = "held the loop"


class LoopGuard:
    """Use `installed` as a context; `watch` loops; `take` what was found."""

    def __init__(self, cpu_seconds: float = CPU_SECONDS, wall_seconds: float = WALL_SECONDS) -> None:
        self._cpu = cpu_seconds
        self._wall = wall_seconds
        self._loops: set[asyncio.AbstractEventLoop] = set()
        self._collecting = threading.local()
        self._found: list[str] = []
        self.longest = self.longest_wall = 0.0

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loops.add(loop)

    def take(self) -> list[str]:
        found, self._found = self._found, []
        return found

    @contextmanager
    def installed(self) -> Iterator[LoopGuard]:
        run: Callable[[asyncio.Handle], None] = asyncio.Handle._run  # type: ignore[attr-defined]

        def timed(handle: asyncio.Handle) -> None:
            if handle._loop not in self._loops:  # type: ignore[attr-defined]
                return run(handle)
            cpu, wall, collected = time.thread_time(), time.perf_counter(), self._collected()
            try:
                return run(handle)
            finally:
                used = time.thread_time() - cpu - (self._collected() - collected)
                self._judge(handle, used, time.perf_counter() - wall)

        asyncio.Handle._run = timed  # type: ignore[attr-defined]
        gc.callbacks.append(self._collection)
        try:
            yield self
        finally:
            asyncio.Handle._run = run  # type: ignore[attr-defined]
            gc.callbacks.remove(self._collection)

    def _judge(self, handle: asyncio.Handle, cpu: float, wall: float) -> None:
        self.longest, self.longest_wall = max(self.longest, cpu), max(self.longest_wall, wall)
        if cpu > self._cpu or wall > self._wall:
            self._found.append(f"{handle!r} {HELD}: {cpu * 1e3:.1f} ms of CPU, {wall * 1e3:.0f} ms in all")

    def _collected(self) -> float:
        return getattr(self._collecting, "total", 0.0)

    def _collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting.started = time.thread_time()
        else:
            self._collecting.total = self._collected() + time.thread_time() - self._collecting.started


GUARD = LoopGuard()

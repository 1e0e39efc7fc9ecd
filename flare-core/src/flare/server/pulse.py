"""Signs of life in a stream that has nothing to say: proxies and clients give up on silence, and a long
prompt takes minutes on a CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Pulse:
    """Calls `beat` whenever `seconds` have passed in which the stream waited for something to write. An
    asynchronous context: behind it nothing is written any more.

    Whoever writes says `writing` before and `wrote` behind it, which costs next to nothing: one timer looks
    at the clock once in `seconds`, whatever flows. While a write waits for a slow reader there is no beat.
    """

    def __init__(self, beat: Callable[[], Awaitable[None]], seconds: float) -> None:
        self._beat = beat
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Pulse:
        self._timer = self._loop.call_at(self._last + self._seconds, self._look)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def writing(self) -> None:
        """Something is about to be written."""
        self._writing = True

    def wrote(self) -> None:
        """It was."""
        self._writing = False
        self._last = self._loop.time()

    def _look(self) -> None:
        now = self._loop.time()
        if now - self._last >= self._seconds and not self._writing and self._idle:
            self._last = now
            self._task = asyncio.ensure_future(self._beat())
        due = self._last + self._seconds
        self._timer = self._loop.call_at(due if due > now else now + self._seconds, self._look)

    @property
    def _idle(self) -> bool:
        return self._task is None or self._task.done()

"""Which requests are open, and how they end when the server does."""

from __future__ import annotations

import asyncio

from flare.errors import UnavailableError


class Lifetime:
    """Shared by the app and whoever serves it. Used on one event loop."""

    def __init__(self) -> None:
        self.draining = False
        self._open: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Raises UnavailableError once the server takes no new work."""
        if self.draining:
            raise UnavailableError("the server is shutting down")

    def watch(self, work: asyncio.Task[None]) -> None:
        """`work` is the handling of one request."""
        self._open.add(work)
        work.add_done_callback(self._open.discard)

    async def drain(self, grace_seconds: float, hurry: asyncio.Event) -> None:
        """Refuse new work, give open requests `grace_seconds` (or until `hurry`) to end, then cancel them;
        their clients get an error. Returns when none is open."""
        self.draining = True
        impatience = asyncio.ensure_future(hurry.wait())
        deadline = asyncio.get_running_loop().time() + grace_seconds
        while self._open and not hurry.is_set():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await asyncio.wait({*self._open, impatience}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        impatience.cancel()
        for work in list(self._open):
            work.cancel()
        if self._open:
            await asyncio.wait(set(self._open))

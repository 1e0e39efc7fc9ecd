"""An engine that is started again when its process dies.

Open requests of the dead process end with an error: what they had drawn is gone with it. Until the next
process has loaded the core nothing is taken (the server answers 503), then service goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flare.engine.client import ProcessEngineClient
from flare.engine.generation import ProcessGeneration
from flare.engine.messages import CacheReport, Ready, Stats, Submit, TimelineReport
from flare.errors import ExecutionError, FlareError, UnavailableError

logger = logging.getLogger("flare.engine")


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The first death within `window_s` seconds is followed by a start at once, the second after
    `delay_s`, every further one after twice the delay before, at most `longest_delay_s`; at death number
    `deaths` nothing is started any more. An engine that cannot load any more counts as dead."""

    deaths: int = 10
    window_s: float = 300.0
    delay_s: float = 0.5
    longest_delay_s: float = 30.0

    def delay(self, deaths: int) -> float:
        """Seconds to wait after so many deaths within the window, this one included."""
        if deaths <= 1:
            return 0.0
        return min(self.delay_s * 2.0 ** (deaths - 2), self.longest_delay_s)


class EngineSupervisor:
    """See `flare.engine.interface.EngineClient`. `start` starts an engine process.

    The first process must become ready (`wait_ready`): one that cannot load its core at all is no case for
    trying again. Made and used on one running event loop.
    """

    def __init__(self, start: Callable[[], ProcessEngineClient], policy: RestartPolicy | None = None) -> None:
        self._start = start
        self._policy = policy or RestartPolicy()
        self._client = start()
        self._restarting = False
        self._restarts = 0
        self._stopping = False
        self._deaths: deque[float] = deque()
        self._abandoned: asyncio.Future[FlareError] = asyncio.get_running_loop().create_future()
        self._watch: asyncio.Task[None] | None = None

    async def wait_ready(self) -> Ready:
        """Wait for the first process and watch it from then on. Raises what it raises when it cannot load."""
        ready = await self._client.wait_ready()
        if self._watch is None:
            self._watch = asyncio.create_task(self._keep_alive(), name="engine-supervisor")
        return ready

    async def wait_abandoned(self) -> FlareError:
        """Wait until the engine died too often and is not started any more; returns why."""
        return await asyncio.shield(self._abandoned)

    @property
    def ready(self) -> Ready | None:
        """See `EngineClient.ready`."""
        return self._client.ready

    @property
    def alive(self) -> bool:
        """See `EngineClient.alive`. False from a death until the next process is ready."""
        return self._client.alive and not self._restarting

    @property
    def restarts(self) -> int:
        """See `EngineClient.restarts`."""
        return self._restarts

    @property
    def pid(self) -> int:
        """Process id of the current engine."""
        return self._client.pid

    async def submit(self, request: Submit) -> ProcessGeneration:
        """See `EngineClient.submit`."""
        self._check()
        client = self._client
        try:
            return await client.submit(request)
        except ExecutionError as error:
            if client.alive:
                raise
            raise UnavailableError(f"{error}, before it took the request") from error

    async def stats(self) -> Stats:
        """See `EngineClient.stats`."""
        self._check()
        return await self._client.stats()

    async def cache_report(self, most: int = 1000) -> CacheReport:
        """See `EngineClient.cache_report`."""
        self._check()
        return await self._client.cache_report(most)

    async def timeline(self, since: int = 0) -> TimelineReport:
        """See `EngineClient.timeline`."""
        self._check()
        return await self._client.timeline(since)

    async def shutdown(self, drain: bool = True, drain_timeout_s: float = 30.0) -> None:
        """End the engine process and start no other. Idempotent; see `ProcessEngineClient.shutdown`."""
        self._stopping = True
        if self._watch is not None and self._restarting:
            self._watch.cancel()
        await self._client.shutdown(drain, drain_timeout_s)
        if self._watch is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    def _check(self) -> None:
        if self._abandoned.done():
            raise ExecutionError(str(self._abandoned.result()))
        if not self._stopping and not self.alive:
            raise UnavailableError("the engine died and is being started again")

    async def _keep_alive(self) -> None:
        while True:
            await self._client.wait_ended()
            if self._stopping:
                return
            self._restarting = True
            deaths = self._count_death()
            failure = self._client.failure
            await self._client.shutdown(drain=False)  # its socket and files
            if deaths >= self._policy.deaths:
                self._give_up(deaths, failure)
                return
            delay = self._policy.delay(deaths)
            logger.warning(
                "%s; starting it again in %.1f s (death %d, %d in %.0f s are too many)",
                failure,
                delay,
                deaths,
                self._policy.deaths,
                self._policy.window_s,
            )
            await asyncio.sleep(delay)
            self._client = self._start()
            self._restarts += 1
            with contextlib.suppress(FlareError):  # its end is the next death
                ready = await self._client.wait_ready()
                self._restarting = False
                logger.warning("the engine serves again, ready in %.1f s", ready.ready_seconds)

    def _count_death(self) -> int:
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths[0] < now - self._policy.window_s:
            self._deaths.popleft()
        return len(self._deaths)

    def _give_up(self, deaths: int, failure: FlareError | None) -> None:
        message = f"{failure}: death {deaths} within {self._policy.window_s:.0f} s, not started again"
        logger.error("%s", message)
        if not self._abandoned.done():
            self._abandoned.set_result(ExecutionError(message))

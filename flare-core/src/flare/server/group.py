"""The choices of one request, run together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType

from flare.engine.interface import EngineClient
from flare.server.choices import Choice, Delta

_QUEUED_DELTAS = 4  # per choice; behind a slow reader the engine client merges the rest


class Group:
    """An asynchronous context: leaving it cancels whatever still runs. The first failure ends the group."""

    def __init__(self, engine: EngineClient, choices: list[Choice]) -> None:
        self._engine = engine
        self._choices = choices
        self._queue: asyncio.Queue[tuple[Choice, Delta] | Exception] = asyncio.Queue(
            _QUEUED_DELTAS * len(choices)
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for choice in self._choices:
            choice.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def start(self) -> None:
        """Return when the first choice is admitted; the others wait for their admission while its tokens can
        be read already. Raises what `EngineClient.submit` raises."""
        if len(self._choices) == 1:
            await self._choices[0].admit(self._engine)
            return
        admitted = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._pump(choice, admitted)) for choice in self._choices]
        await admitted

    async def deltas(self) -> AsyncIterator[tuple[Choice, Delta]]:
        """Deltas of all choices as they come, until every choice ended. Raises the first failure."""
        if len(self._choices) == 1:
            async for delta in self._choices[0].deltas():
                yield self._choices[0], delta
            return
        running = len(self._choices)
        while running:
            item = await self._queue.get()
            if isinstance(item, Exception):
                raise item
            running -= item[1].finish_reason is not None
            yield item

    async def _pump(self, choice: Choice, admitted: asyncio.Future[None]) -> None:
        try:
            await choice.admit(self._engine)
            if not admitted.done():
                admitted.set_result(None)
            async for delta in choice.deltas():
                await self._queue.put((choice, delta))
        except Exception as error:
            if not admitted.done():
                admitted.set_exception(error)
            else:
                await self._queue.put(error)

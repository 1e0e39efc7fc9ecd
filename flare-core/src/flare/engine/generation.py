"""The front's side of one request: events merge until somebody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from flare.engine.messages import Finished, TokenLogprobs, Tokens
from flare.errors import ExecutionError, FlareError


class ProcessGeneration:
    """See `flare.engine.interface.Generation`. The client feeds it on the event loop's thread.

    Unread tokens of any number of events become one, so an unread request holds at most its own output.
    """

    def __init__(self, request_id: str, cancel: Callable[[str], None]) -> None:
        self.request_id = request_id
        self.admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancel = cancel
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._end: Finished | FlareError | None = None
        self._news = asyncio.Event()

    def cancel(self) -> None:
        """See `Generation.cancel`."""
        if self._end is None:
            self._cancel(self.request_id)

    async def __aiter__(self) -> AsyncIterator[Tokens | Finished]:
        while True:
            await self._news.wait()
            if self._tokens:
                tokens, self._tokens = tuple(self._tokens), []
                logprobs, self._logprobs = tuple(self._logprobs), []
                yield Tokens(request_id=self.request_id, tokens=tokens, logprobs=logprobs)
            elif isinstance(self._end, Finished):
                yield self._end
                return
            elif self._end is not None:
                raise self._end
            else:
                self._news.clear()

    # Fed by the client.

    def admitted(self) -> None:
        """The engine admitted the request."""
        if not self.admission.done():
            self.admission.set_result(None)

    def feed(self, event: Tokens) -> None:
        """More output."""
        self._tokens.extend(event.tokens)
        self._logprobs.extend(event.logprobs)
        self._news.set()

    def finish(self, event: Finished) -> None:
        """The request ended. One that was withdrawn before admission ends this way too."""
        self.admitted()
        self._finish(event)

    def fail(self, error: FlareError) -> None:
        """The request was refused or failed."""
        if not self.admission.done():
            self.admission.set_exception(error)
            self.admission.exception()  # whoever waits gets it; nobody waiting is no news
        self._finish(error if isinstance(error, ExecutionError) else ExecutionError(str(error)))

    def _finish(self, end: Finished | FlareError) -> None:
        if self._end is None:
            self._end = end
        self._news.set()

"""The outermost layer of the app: request ids, disconnects, failures, shutdown."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from flare.errors import UnavailableError
from flare.server.exchange import Inbox, Outbox, request_id_of
from flare.server.lifetime import Lifetime

logger = logging.getLogger("flare.server")


class RequestBoundary:
    """Pure ASGI middleware. The application handles a request in a task of its own, which is cancelled when
    the client disconnects, whatever it is waiting for: admission, tokens, or the client's socket.

    Puts into `scope["state"]`: `request_id`, and `resources`, an AsyncExitStack that is closed when the
    request is over, however it ended.
    """

    def __init__(self, app: ASGIApp, lifetime: Lifetime) -> None:
        self._app = app
        self._lifetime = lifetime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(scope)
        inbox, outbox = Inbox(receive), Outbox(send, request_id)
        async with AsyncExitStack() as resources:
            scope.setdefault("state", {}).update(request_id=request_id, resources=resources)
            work = asyncio.ensure_future(self._handle(scope, inbox, outbox))
            self._lifetime.watch(work)
            await self._until_over(work, inbox, outbox)
        if work.cancelled():
            if inbox.gone.is_set():
                logger.info("request %s: the client disconnected", request_id)
            else:
                logger.warning("request %s: ended by shutdown", request_id)
                await outbox.fail(UnavailableError("the server is shutting down"))
        elif (error := work.exception()) is not None:
            assert isinstance(error, Exception)
            logger.error("request %s: internal error", request_id, exc_info=error)
            await outbox.fail(error)

    async def _handle(self, scope: Scope, inbox: Inbox, outbox: Outbox) -> None:
        try:
            await self._app(scope, inbox.receive, outbox.send)
        except ClientDisconnect:
            raise asyncio.CancelledError from None

    @staticmethod
    async def _until_over(work: asyncio.Task[None], inbox: Inbox, outbox: Outbox) -> None:
        gone = asyncio.ensure_future(inbox.disconnected())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            # The server also reports a disconnect behind a complete response.
            if not work.done() and not outbox.complete:
                work.cancel()
            await asyncio.wait((work,))
        finally:
            gone.cancel()
            work.cancel()

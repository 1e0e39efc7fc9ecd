"""The outermost layer of the app: request ids, time limit, disconnects, failures, shutdown, records."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from flare.errors import FlareError, UnavailableError
from flare.server.errors import HTTPError
from flare.server.exchange import Inbox, Outbox, request_id_of
from flare.server.failures import note_failure
from flare.server.framing import check_framing
from flare.server.lifetime import Lifetime
from flare.server.observer import Observer
from flare.server.record import RequestRecord


class RequestBoundary:
    """Pure ASGI middleware. The application handles a request in a task of its own, which is cancelled when
    the client disconnects or the time is up, whatever it is waiting for: admission, tokens, or the client's
    socket. However a request ends, `observer` is told once.

    Puts into `scope["state"]`: `record`, the RequestRecord, and `resources`, an AsyncExitStack that is closed
    when the request is over. HEAD is handled as GET without a body.
    """

    def __init__(
        self, app: ASGIApp, lifetime: Lifetime, observer: Observer, request_timeout: float | None
    ) -> None:
        self._app = app
        self._lifetime = lifetime
        self._observer = observer
        self._timeout = request_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(id=request_id_of(scope), method=scope["method"], path=scope["path"])
        self._observer.arrived()
        inner = {**scope, "method": "GET" if record.method == "HEAD" else record.method}
        try:
            await self._answer(inner, Inbox(receive), Outbox(send, record), record)
        finally:
            if (route := inner.get("route")) is not None:
                record.route = route.path
            self._observer.ended(record)

    async def _answer(self, scope: Scope, inbox: Inbox, outbox: Outbox, record: RequestRecord) -> None:
        try:
            check_framing(scope)
        except FlareError as fault:
            await self._fail(outbox, record, fault)
            return
        async with AsyncExitStack() as resources:
            scope["state"] = {**scope.get("state", {}), "record": record, "resources": resources}
            work = asyncio.ensure_future(self._handle(scope, inbox, outbox))
            self._lifetime.watch(work)
            late = await self._until_over(work, inbox, outbox)
        if work.cancelled():
            if inbox.gone.is_set():
                record.disconnected = True
            elif late:
                message = f"the request took longer than {self._timeout:g} s, the limit of this server"
                await self._fail(outbox, record, HTTPError(504, message, code="timeout"))
            else:
                await self._fail(outbox, record, UnavailableError("the server is shutting down"))
        elif (error := work.exception()) is not None:
            assert isinstance(error, Exception)
            await self._fail(outbox, record, error)

    @staticmethod
    async def _fail(outbox: Outbox, record: RequestRecord, error: Exception) -> None:
        if not outbox.complete:
            note_failure(record, error)
        await outbox.fail(error)

    async def _handle(self, scope: Scope, inbox: Inbox, outbox: Outbox) -> None:
        try:
            await self._app(scope, inbox.receive, outbox.send)
        except ClientDisconnect:
            raise asyncio.CancelledError from None

    async def _until_over(self, work: asyncio.Task[None], inbox: Inbox, outbox: Outbox) -> bool:
        """Returns when `work` ended, cancelled when its client left or its time is up: then with True."""
        gone = asyncio.ensure_future(inbox.disconnected())
        late = False
        try:
            await asyncio.wait((work, gone), timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            # The server also reports a disconnect behind a complete response.
            if not work.done() and not outbox.complete:
                late = not gone.done()
                work.cancel()
            await asyncio.wait((work,))
        finally:
            gone.cancel()
            work.cancel()
        return late

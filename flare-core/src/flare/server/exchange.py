"""One HTTP request and its response, seen from the ASGI channel."""

from __future__ import annotations

import asyncio
import re
import secrets

from starlette.types import Message, Receive, Scope, Send

from flare.server.error_shapes import error_event, refusal_body
from flare.server.errors import error_headers, status_of
from flare.server.record import RequestRecord

_SANE_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id_of(scope: Scope) -> str:
    """The client's `x-request-id` when it is short printable ASCII, otherwise a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text: str = value.decode("latin-1")
            if _SANE_ID.fullmatch(text):
                return text
    return new_request_id()


def new_request_id() -> str:
    """An id for a request that brought none."""
    return f"req-{secrets.token_hex(12)}"


class Inbox:
    """The request side. The application reads the body through `receive`; behind its end only the
    disconnect is left, which `disconnected` waits for and every later `receive` reports."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body_read = asyncio.Event()
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        """ASGI receive for the application."""
        if self._body_read.is_set():
            await self.gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone.set()
        elif not message.get("more_body", False):
            self._body_read.set()
        return message

    async def disconnected(self) -> None:
        """Return when the client is gone, at any time after the body was read."""
        await self._body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


class Outbox:
    """The response side: adds `x-request-id`, writes the status into the record, knows how far the response
    is, and can end it with an error. The body of an answer to HEAD stays here."""

    def __init__(self, send: Send, record: RequestRecord) -> None:
        self._send = send
        self._record = record
        self._header = (b"x-request-id", record.id.encode("ascii"))
        self._bodiless = record.method == "HEAD"
        self._streams_events = False
        self.started = False
        self.complete = False

    async def send(self, message: Message) -> None:
        """ASGI send for the application."""
        if message["type"] == "http.response.start":
            self.started = True
            self._record.status = message["status"]
            headers = [*message.get("headers", ()), self._header]
            self._streams_events = any(
                name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers
            )
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
            if self._bodiless:
                message = {**message, "body": b""}
        await self._send(message)

    async def fail(self, error: Exception) -> None:
        """End the response with `error`: as a response of its own, as the last event of an open stream, or
        not at all when it is complete already."""
        if self.complete:
            return
        if self.started:
            body = self._last_event(error) if self._streams_events else b""
        else:
            body = refusal_body(self._record, error)
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            headers += [(name.encode(), value.encode()) for name, value in error_headers(error).items()]
            await self.send({"type": "http.response.start", "status": status_of(error), "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def _last_event(self, error: Exception) -> bytes:
        written = self._record.last_event
        return error_event(error) if written is None else written(error)

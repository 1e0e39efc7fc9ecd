"""One HTTP connection: what never becomes a request is answered, logged and counted here."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from flare.server.error_shapes import error_body
from flare.server.errors import HTTPError, error_headers, status_of
from flare.server.exchange import new_request_id
from flare.server.observer import Observer
from flare.server.record import RequestRecord
from flare.server.settings import ServerSettings
from flare.server.wire import json_bytes

_READ_BYTES = 8192  # at a time: a peer that sends its body in chunks of one byte costs 20 us for each
_LINGER_SECONDS = 1.0  # for a refusal to be read before the connection ends
_BODY_GRACE_SECONDS = 2.0  # the app answers first when a body is late
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (/[\x21-\x7e]{0,200})")


class Connection(H11Protocol, asyncio.BufferedProtocol):
    """Uvicorn's HTTP/1.1 connection with limits: of connections, of the time in which a request's head and
    body arrive, and of the time a peer takes nothing of a response. Malformed requests get an error in the
    API's shape that says what is wrong. WebSocket upgrades are ignored: there is nothing to upgrade to.

    `config.app.state` holds `settings` and `observer`. Reads in small pieces.
    """

    def __init__(self, config: uvicorn.Config, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._settings: ServerSettings = config.app.state.settings  # type: ignore[union-attr]
        self._observer: Observer = config.app.state.observer  # type: ignore[union-attr]
        self._buffer = bytearray(_READ_BYTES)
        self._head = b""
        self._refused = False
        self._phase = "idle"
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # Reading.

    def get_buffer(self, sizehint: int) -> bytearray:
        """See `asyncio.BufferedProtocol`."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        self.data_received(bytes(memoryview(self._buffer)[:nbytes]))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        if len(self.connections) > self._settings.max_connections:
            limit = self._settings.max_connections
            self._refuse(HTTPError(503, f"{limit} connections are open already", code="too_many_connections"))
        else:
            self._watch_phase("head")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._watch_phase("closed")
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._refused:
            return
        if self.conn.their_state is h11.IDLE:
            self._head = (self._head + data)[:256]
        super().data_received(data)
        self._update_phase()

    def eof_received(self) -> None:
        """See `asyncio.Protocol`."""
        if self._refused:
            self.transport.close()
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(_malformed("the connection ended within the request's head"))

    def on_response_complete(self) -> None:
        """See `H11Protocol`."""
        super().on_response_complete()
        self._update_phase()

    def _update_phase(self) -> None:
        state = self.conn.their_state
        if state is h11.IDLE and self.conn.trailing_data[0]:
            self._watch_phase("head")
        elif state is h11.SEND_BODY:
            self._watch_phase("body")
        elif self._phase != "head" or state is not h11.IDLE:
            self._watch_phase("idle")

    def _watch_phase(self, phase: str) -> None:
        """Start the clock of a phase that has begun; one that goes on keeps its clock."""
        if phase == self._phase:
            return
        self._phase = phase
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if phase in ("head", "body"):
            seconds = self._settings.io_timeout + (_BODY_GRACE_SECONDS if phase == "body" else 0.0)
            self._read_timer = self.loop.call_later(seconds, self._read_late)
        if phase != "head":
            self._head = b""

    def _read_late(self) -> None:
        self._read_timer = None
        if self._phase == "head" and self._head:
            limit = self._settings.io_timeout
            message = f"the request's head did not arrive within {limit:g} s"
            self._refuse(HTTPError(408, message, code="request_timeout"))
        else:
            self.transport.close()

    # Writing.

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._settings.io_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # Refusing.

    def _should_upgrade(self) -> bool:
        return False

    def send_400_response(self, msg: str) -> None:
        """Called by `handle_events` while it handles the parser's error."""
        error = sys.exc_info()[1]
        assert isinstance(error, h11.RemoteProtocolError)
        if error.error_status_hint == 431:
            limit = self._settings.max_header_bytes
            message = f"the request's line and headers are larger than {limit} bytes"
            self._refuse(HTTPError(431, message, code="headers_too_large"))
        else:
            self._refuse(_malformed(str(error)))

    def _refuse(self, error: HTTPError) -> None:
        """Answer with `error`, unless a response is under way, and end the connection. What the peer still
        sends is thrown away for a moment: closing at once would take the answer from it."""
        record = self._record(error)
        self._refused = True
        self._watch_phase("closed")
        self._unset_keepalive_if_required()
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy:
            # The app sees a client that left. Its record has the request; what came behind it is garbage.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if busy and self.cycle.response_started:
            self.transport.close()
            return
        self._observer.refused(record)
        self.transport.write(_response(error, record.id))
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _record(self, error: HTTPError) -> RequestRecord:
        line = _REQUEST_LINE.match(self._head)
        method, path = ("-", "-") if line is None else (line[1].decode(), line[2].decode().partition("?")[0])
        record = RequestRecord(id=new_request_id(), method=method, path=path, status=status_of(error))
        record.fail(error)
        return record


def _malformed(message: str) -> HTTPError:
    return HTTPError(400, f"malformed HTTP request: {message}", code="malformed_http")


def _response(error: HTTPError, request_id: str) -> bytes:
    body = json_bytes(error_body(error))
    headers = {
        **error_headers(error),
        "connection": "close",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "x-request-id": request_id,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {error.status} {_REASONS[error.status]}\r\n{lines}\r\n".encode() + body


_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}

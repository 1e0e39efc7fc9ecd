"""Serving an app on a socket, and ending well."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from flare.errors import FlareError
from flare.server.connection import Connection
from flare.server.lifetime import Lifetime
from flare.server.notify import notify

_KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections, so that none is closed under them
_CLOSING_SECONDS = 2  # for the last bytes of ended requests to reach clients that stopped reading


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises FlareError when the address cannot be bound."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise FlareError(f"cannot listen on {host} port {port}: {error}", field="port") from None
    # Accepted connections inherit it. The event loop sets it only on sockets it made itself; without it the
    # kernel holds the second small write of a stream until the first is acknowledged, about 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 8000,
    sock: socket.socket | None = None,
    on_started: Callable[[str, int], None] | None = None,
    grace_seconds: float = 30.0,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve `app`, made by `create_app`, until `stop` is set, SIGTERM or SIGINT.

    `on_started` is called once with the bound host and port, when connections are accepted. At the end
    listeners close, new requests on open connections get 503, and running ones have `grace_seconds` to end
    before they are cancelled with an error; a second signal ends the grace. Signals are handled in the main
    thread only, and their former handlers come back. `sock`, when given, is already bound and is closed.

    Raises FlareError when the address cannot be bound.
    """
    sock = sock or listen(host, port)
    config = uvicorn.Config(
        app,
        http=Connection,
        h11_max_incomplete_event_size=app.state.settings.max_header_bytes,
        proxy_headers=False,
        server_header=False,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )
    stop = stop or asyncio.Event()
    server = _Server(config, app.state.lifetime, grace_seconds, stop, on_started)
    try:
        with _signals(server, stop):
            await server.serve([sock])
    finally:
        sock.close()
        await app.state.grammars.close()


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling, draining requests before it closes their connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        lifetime: Lifetime,
        grace_seconds: float,
        stop: asyncio.Event,
        on_started: Callable[[str, int], None] | None,
    ) -> None:
        super().__init__(config)
        self._lifetime = lifetime
        self._grace_seconds = grace_seconds
        self._stop = stop
        self._on_started = on_started
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """End the grace."""
        self._hurry.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_started is not None:
            assert sockets is not None
            host, port, *_ = sockets[0].getsockname()
            self._on_started(host, port)

    async def main_loop(self) -> None:
        # Uvicorn's own loop wakes ten times a second; once keeps its date header right.
        while not self._stop.is_set() and not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        notify("STOPPING=1")
        for server in self.servers:
            server.close()
        await self._lifetime.drain(self._grace_seconds, self._hurry)
        await super().shutdown(sockets)


@contextlib.contextmanager
def _signals(server: _Server, stop: asyncio.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    loop = asyncio.get_running_loop()

    def handle(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(server.hurry if stop.is_set() else stop.set)

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

"""A server of pictures that can misbehave, and what it was asked."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class PictureServer:
    """On a free loopback port while used as a context. `answers` by path; `asked` holds path and headers of
    every request, `most` how many were answered at the same time."""

    def __init__(self, answers: dict[str, Answer], context: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self._answers = answers
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            # The handshake is for the thread that answers.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.asked.append(
                (handler.path, {name.lower(): value for name, value in handler.headers.items()})
            )
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            self._answers[handler.path](handler)
        finally:
            with self._lock:
                self._now -= 1

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def __enter__(self) -> PictureServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def content(
    body: bytes, kind: str | None = "image/png", length: int | None = None, status: int = 200, **more: str
) -> Answer:
    """An answer with a body; `length` may lie about it."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if kind is not None:
            handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in more.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = length is not None

    return answer


def redirect(location: str | None, status: int = 302) -> Answer:
    more = {} if location is None else {"Location": location}
    return content(b"", kind=None, status=status, **more)


def chunks(piece: bytes, count: int, pause: float = 0.0) -> Answer:
    """An answer without a length, in pieces with pauses between them."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "image/png")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for _ in range(count):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
            time.sleep(pause)
        handler.wfile.write(b"0\r\n\r\n")

    return answer


def silence(seconds: float) -> Answer:
    """Nothing for a while, then a closed connection."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return answer

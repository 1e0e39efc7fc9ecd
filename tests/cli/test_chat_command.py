"""`flare chat` against live servers: a real HTTP server with a scripted engine, and servers that fail."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from flare_command import failure, flare

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))
from live import LiveServer, say

SPEED = re.compile(r"\d+ prompt tokens, \d+ drawn, first text after \d+ ms(, [0-9.]+ tok/s)?\n")


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with LiveServer() as server:
        server.call(lambda: setattr(server.engine, "script", say("a good answer")))
        yield server


def test_one_question_gives_text_and_a_speed(live: LiveServer) -> None:
    result = flare("chat", "hello", "--url", live.url)

    assert (result.returncode, result.stdout) == (0, "a good answer\n")
    assert SPEED.fullmatch(result.stderr)


def test_a_conversation_from_a_pipe(live: LiveServer) -> None:
    result = flare("chat", "--url", live.url, "--system", "be brief", stdin="one\n\ntwo\n")

    assert (result.returncode, result.stdout) == (0, "a good answer\na good answer\n")
    first, second = [int(line.split()[0]) for line in result.stderr.splitlines()]
    assert second > first  # the second request carries the first exchange


def test_a_refusal_is_the_servers_own_message(live: LiveServer) -> None:
    assert failure("chat", "hello", "--url", live.url, "--temperature", "0").startswith(
        "temperature must be above 0"
    )


def test_a_conversation_survives_a_refusal(live: LiveServer) -> None:
    result = flare("chat", "--url", live.url, stdin="x" * 3000 + "\nshort\n")

    assert (result.returncode, result.stdout) == (0, "a good answer\n")
    assert result.stderr.startswith("flare: the context length is")


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    assert failure("chat", "hello", "--url", url).startswith(f"no server answers at {url}")
    assert failure("chat", "hello", "--url", "nonsense").startswith("no server answers at nonsense")


class Broken(BaseHTTPRequestHandler):
    """Knows a model; its answers break off, or are no JSON at all."""

    def do_GET(self) -> None:
        self._answer(b'{"data":[{"id":"m"}]}' if self.server.knows else b"<html>")  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(b'data: {"choices":[{"delta":{"content":"begun"}}]}\n\n')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def broken() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Broken) as server:
        server.knows = True  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_answer_that_breaks_off_is_not_taken_for_whole(broken: HTTPServer) -> None:
    result = flare("chat", "hello", "--url", f"http://127.0.0.1:{broken.server_port}")

    assert (result.returncode, result.stdout) == (1, "begun\n")
    assert result.stderr == "flare: the answer broke off\n"


def test_something_else_than_a_model_server(broken: HTTPServer) -> None:
    broken.knows = False  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{broken.server_port}"

    assert failure("chat", "hello", "--url", url).startswith(f"{url} is not a model server")

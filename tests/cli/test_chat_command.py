"""`flare chat` against live servers: a real HTTP server with a scripted engine, and servers that fail."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from chatting import chat, prompts
from flare_command import flare
from live import LiveServer, say

from flare.server import ServerSettings
from flare.server.keys import ApiKeys

SPEED = re.compile(
    r"(\d+) prompt tokens \(\d+ cached\), \d+ drawn, first token after \d+ ms(, [0-9.]+ tok/s)?\n"
)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with LiveServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _answers(live: LiveServer) -> None:
    live.reset()
    live.call(lambda: setattr(live.engine, "script", say("a good answer", cached=3)))


def test_one_question_gives_text_and_a_speed(live: LiveServer) -> None:
    result = flare("chat", "hello", "--url", live.url)

    assert (result.returncode, result.stdout) == (0, "a good answer\n")
    assert SPEED.fullmatch(result.stderr)
    assert " (3 cached), 10 drawn, " in result.stderr


def test_a_conversation_from_a_pipe(live: LiveServer) -> None:
    result = chat(live.url, "--system", "be brief", stdin="one\n\ntwo\n")

    assert (result.exit_code, result.stdout) == (0, "a good answer\na good answer\n")
    first, second = [int(found[1]) for found in SPEED.finditer(result.stderr)]
    assert second > first  # the second request carries the first exchange


def test_a_refusal_is_the_servers_own_message(live: LiveServer) -> None:
    result = chat(live.url, "hello", "--temperature", "0")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("flare: temperature must be above 0")


def test_a_conversation_survives_a_refusal(live: LiveServer) -> None:
    result = chat(live.url, stdin="x" * 3000 + "\nshort\n")

    assert (result.exit_code, result.stdout) == (0, "a good answer\n")
    assert result.stderr.startswith("flare: the prompt is too long: ")
    assert "xxx" not in prompts(live)[0]


def test_a_line_that_is_no_text_is_said_and_the_next_is_asked(live: LiveServer) -> None:
    result = chat(live.url, stdin=b"caf\xe9\nshort\n")

    assert (result.exit_code, result.stdout) == (0, "a good answer\n")
    assert result.stderr.startswith("flare: a line of the input is not UTF-8 text\n")


def test_a_server_with_keys() -> None:
    with LiveServer(settings=ServerSettings(api_keys=ApiKeys(["secret"]))) as server:
        assert chat(server.url, "hello", "--api-key", "secret").stdout == "hello\n"
        refused = chat(server.url, "hello")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "key" in refused.stderr


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    for address in (url, "nonsense"):
        result = chat(address, "hello")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"flare: no server answers at {address}")


BEGUN = b'data: {"choices":[{"delta":{"content":"begun"}}]}\n\n'


class Broken(BaseHTTPRequestHandler):
    """Knows a model; its answers break off, or are no JSON at all."""

    def do_GET(self) -> None:
        self._answer(b'{"data":[{"id":"m"}]}' if self.server.knows else b"<html>")  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(self.server.stream)  # type: ignore[attr-defined]

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
        server.stream = BEGUN  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (b"", "the answer broke off"),
        (b'data: {"error": {"message": "gone \\u001b[31m"}}\n\n', "gone \u241b[31m"),
        (b'data: {"other": 1}\n\n', "the server sent what is no part of an answer: '{\"other\": 1}'"),
        (b"data: <html>\n\n", "the server sent what is no part of an answer: '<html>'"),
    ],
)
def test_an_answer_that_breaks_off_is_not_taken_for_whole(
    broken: HTTPServer, more: bytes, words: str
) -> None:
    broken.stream = BEGUN + more  # type: ignore[attr-defined]
    result = chat(f"http://127.0.0.1:{broken.server_port}", "hello")

    assert (result.exit_code, result.stdout) == (1, "begun\n")
    assert result.stderr == f"flare: {words}\n"


def test_a_question_without_an_answer_is_kept_for_another_try(broken: HTTPServer, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    result = chat(f"http://127.0.0.1:{broken.server_port}", stdin=f"one\n/retry\n/save {saved}\n")

    assert (result.exit_code, result.stdout) == (0, "begun\nbegun\n")
    assert json.loads(saved.read_text()) == [{"role": "user", "content": "one"}]


def test_something_else_than_a_model_server(broken: HTTPServer) -> None:
    broken.knows = False  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{broken.server_port}"

    assert chat(url, "hello").stderr.startswith(f"flare: {url} is not a model server")

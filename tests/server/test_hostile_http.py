"""Hostile bytes on a raw connection: each gets a refusal that names the fault, and the server goes on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from live import LiveServer, chatter, raw_post

from flare.server import ServerSettings

CHAT = "/v1/chat/completions"
GOOD = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()


def head(*headers: str, line: str = f"POST {CHAT} HTTP/1.1", host: str | None = "x") -> bytes:
    lines = [line, *([] if host is None else [f"host: {host}"]), *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


JSON = "content-type: application/json"
LENGTH = f"content-length: {len(GOOD)}"
CHUNKED = "transfer-encoding: chunked"

# name: (bytes, status, words of the message)
CASES: dict[str, tuple[bytes, int, str]] = {
    "no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "request line"),
    "an empty line and garbage": (b"\r\n\r\ngarbage\r\n\r\n", 400, "request line"),
    "a line without version": (b"GET /health\r\n\r\n", 400, "request line"),
    "a path with a space": (b"GET /he alth HTTP/1.1\r\nhost: x\r\n\r\n", 400, "request line"),
    "a path with NUL": (b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "request line"),
    "a path outside ASCII": (b"GET /\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "request line"),
    "a method with a colon": (b"GE:T / HTTP/1.1\r\nhost: x\r\n\r\n", 400, "request line"),
    "a strange version": (b"GET / HTTP/a.b\r\nhost: x\r\n\r\n", 400, "request line"),
    "an unknown method": (head(line=f"BREW {CHAT} HTTP/1.1"), 405, "Method Not Allowed"),
    "TRACE": (head(line="TRACE / HTTP/1.1"), 405, "Method Not Allowed"),
    "CONNECT": (head(line="CONNECT example.com:443 HTTP/1.1"), 404, "Not Found"),
    "OPTIONS *": (head(line="OPTIONS * HTTP/1.1"), 404, "Not Found"),
    "an absolute target": (head(line="GET http://evil/v1/models HTTP/1.1"), 404, "Not Found"),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, "Not Found"),
    "encoded NUL in the path": (head(line="GET /%00 HTTP/1.1"), 404, "Not Found"),
    "broken encoding in the path": (head(line="GET /%ff%zz HTTP/1.1"), 404, "Not Found"),
    "path traversal": (head(line="GET /../../etc/passwd HTTP/1.1"), 404, "Not Found"),
    "encoded traversal": (head(line="GET /v1/models/..%2f..%2fetc HTTP/1.1"), 404, "does not exist"),
    "a model name with template syntax": (
        head(line="GET /v1/models/%7B%7B7*7%7D%7D HTTP/1.1"),
        404,
        "{{7*7}}",
    ),
    "no host": (head(JSON, LENGTH, host=None) + GOOD, 400, "Host"),
    "two hosts": (head("host: y", JSON, LENGTH) + GOOD, 400, "Host"),
    "a host with a path": (head(JSON, LENGTH, host="x/../y") + GOOD, 400, "host header"),
    "a host with an open bracket": (head(JSON, LENGTH, host="[::1") + GOOD, 400, "host header"),
    "a host that is no address": (head(JSON, LENGTH, host="[::::]") + GOOD, 400, "host header"),
    "a host with a user": (head(JSON, LENGTH, host="user@x") + GOOD, 400, "host header"),
    "a header without colon": (head("no colon here"), 400, "malformed"),
    "a header name with a space": (head("bad name: x"), 400, "malformed"),
    "a space before the colon": (head("content-length : 5"), 400, "malformed"),
    "NUL in a header": (head("x-a: a\x00b"), 400, "malformed"),
    "a bare carriage return in a header": (head("x-a: a\rb"), 400, "malformed"),
    "a folded first header": (b"GET / HTTP/1.1\r\n host: x\r\n\r\n", 400, "continuation"),
    "oversized headers": (head("x-big: " + "a" * 50_000), 431, "headers are larger than"),
    "an oversized line": (head(line=f"GET /{'a' * 50_000} HTTP/1.1"), 431, "headers are larger than"),
    "an endless line": (b"GET /" + b"a" * 50_000, 431, "headers are larger than"),
    "too many headers": (head(*[f"x-{i}: y" for i in range(5000)]), 431, "headers are larger than"),
    "a length that is no number": (head(JSON, "content-length: ten") + GOOD, 400, "Content-Length"),
    "a negative length": (head(JSON, "content-length: -1") + GOOD, 400, "Content-Length"),
    "a length with a sign": (head(JSON, "content-length: +5") + GOOD, 400, "Content-Length"),
    "a hexadecimal length": (head(JSON, "content-length: 0x10") + GOOD, 400, "Content-Length"),
    "two lengths": (head(JSON, LENGTH, "content-length: 5") + GOOD, 400, "Content-Length"),
    "an absurd length": (head(JSON, "content-length: " + "9" * 19) + GOOD, 413, "larger than"),
    "length and chunks": (head(JSON, LENGTH, CHUNKED) + b"0\r\n\r\n", 400, "exclude each other"),
    "chunks twice": (
        head(JSON, "transfer-encoding: chunked, chunked") + b"0\r\n\r\n",
        400,
        "Transfer-Encoding",
    ),
    "a compressed transfer": (head(JSON, "transfer-encoding: gzip") + GOOD, 400, "Transfer-Encoding"),
    "a chunk size that is none": (head(JSON, CHUNKED) + b"zz\r\n{}\r\n0\r\n\r\n", 400, "malformed"),
    "a negative chunk size": (head(JSON, CHUNKED) + b"-5\r\n{}\r\n0\r\n\r\n", 400, "malformed"),
    "an enormous chunk size": (head(JSON, CHUNKED) + b"f" * 30 + b"\r\n{}", 400, "malformed"),
    "a chunk longer than its size": (head(JSON, CHUNKED) + b"2\r\n{}{}\r\n0\r\n\r\n", 400, "malformed"),
    "an empty chunked body": (head(JSON, CHUNKED) + b"0\r\n\r\n", 400, "not valid JSON"),
    "no content type": (head(LENGTH) + GOOD, 415, "content-type"),
    "text": (head("content-type: text/plain", LENGTH) + GOOD, 415, "content-type"),
    "a form": (head("content-type: multipart/form-data; boundary=x", LENGTH) + GOOD, 415, "content-type"),
    "a made-up type": (head("content-type: application/jsonp", LENGTH) + GOOD, 415, "content-type"),
    "gzip": (head(JSON, LENGTH, "content-encoding: gzip") + GOOD, 415, "content-encoding"),
    "an unknown coding": (head(JSON, LENGTH, "content-encoding: {{7*7}}") + GOOD, 415, "content-encoding"),
    "a body for GET /v1/models/x": (
        head(JSON, LENGTH, line="GET /v1/models/x HTTP/1.1") + GOOD,
        404,
        "exist",
    ),
    "HTTP/1.0 without a body": (head(JSON, line=f"POST {CHAT} HTTP/1.0", host=None), 400, "not valid JSON"),
    "a websocket": (
        head(
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-key: eA==",
            line=f"GET {CHAT} HTTP/1.1",
        ),
        405,
        "Method Not Allowed",
    ),
    "a trailing slash": (head(line="GET /health/ HTTP/1.1"), 404, "Not Found"),
    "two slashes": (head(line="GET //evil.example/ HTTP/1.1"), 404, "Not Found"),
}


def answer_to(server: LiveServer, data: bytes) -> httpx.Response:
    """The first response to raw bytes."""
    with server.connect() as connection:
        connection.sendall(data)
        return read_response(iter(lambda: connection.recv(65536), b""))


def read_response(pieces: Iterator[bytes]) -> httpx.Response:
    data = b""
    for piece in pieces:
        data += piece
        before, found, after = data.partition(b"\r\n\r\n")
        if not found:
            continue
        line, *rest = before.decode("latin-1").split("\r\n")
        headers = [(name.strip(), value.strip()) for name, _, value in (item.partition(":") for item in rest)]
        length = int(dict(headers)["content-length"])
        if len(after) >= length:
            return httpx.Response(int(line.split()[1]), headers=headers, content=after[:length])
    raise AssertionError(f"no complete response: {data!r}")


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_names_the_fault(server: LiveServer, http: httpx.Client, name: str) -> None:
    data, status, words = CASES[name]
    answer = answer_to(server, data)

    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-request-id"]
    assert server.engine.counters.submissions == []
    assert http.post(CHAT, content=GOOD, headers={"content-type": "application/json"}).status_code == 200


def test_garbage_behind_a_good_request_is_answered_after_it(server: LiveServer) -> None:
    with server.connect() as connection:
        connection.sendall(head(JSON, LENGTH) + GOOD + b"\x00garbage\r\n\r\n")
        connection.settimeout(5)
        received = b"".join(iter(lambda: connection.recv(65536), b""))

    first, _, second = received.partition(b"HTTP/1.1 400")
    assert first.startswith(b"HTTP/1.1 200")
    assert b"malformed_http" in second


def test_two_good_requests_at_once_are_both_answered(server: LiveServer) -> None:
    with server.connect() as connection:
        last = head(JSON, LENGTH, "connection: close") + GOOD
        connection.sendall(head(JSON, LENGTH) + GOOD + last)
        received = b"".join(iter(lambda: connection.recv(65536), b""))

    assert received.count(b"HTTP/1.1 200") == 2


def test_old_http_is_served(server: LiveServer) -> None:
    answer = answer_to(server, head(JSON, LENGTH, line=f"POST {CHAT} HTTP/1.0", host=None) + GOOD)

    assert answer.status_code == 200


def test_a_body_sent_byte_by_byte_is_served(server: LiveServer) -> None:
    with server.connect() as connection:
        for byte in head(JSON, LENGTH) + GOOD:
            connection.sendall(bytes((byte,)))
        assert read_response(iter(lambda: connection.recv(65536), b"")).status_code == 200


def test_a_bad_chunk_cancels_what_waits_for_it(server: LiveServer) -> None:
    answer = answer_to(server, head(JSON, CHUNKED) + b'5\r\n{"mes\r\nzz\r\n')

    assert answer.status_code == 400
    assert server.engine.running == 0


# Time and connections.


@pytest.fixture(scope="module")
def strict() -> Iterator[LiveServer]:
    with LiveServer(ServerSettings(io_timeout=0.3, max_connections=3)) as strict:
        yield strict


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"POST /v1/chat", "head did not arrive"),
        (head(JSON, LENGTH)[:-2], "head did not arrive"),
        (head(JSON, LENGTH), "body did not arrive"),
        (head(JSON, LENGTH) + GOOD[:-1], "body did not arrive"),
        (head(JSON, CHUNKED) + b"2\r\n{ \r\n", "body did not arrive"),
    ],
)
def test_a_request_that_does_not_arrive(strict: LiveServer, data: bytes, words: str) -> None:
    answer = answer_to(strict, data)

    assert answer.status_code == 408
    assert answer.json()["error"]["code"] == "request_timeout"
    assert words in answer.json()["error"]["message"]
    assert answer.headers["connection"] == "close"


def test_trickling_does_not_extend_the_time(strict: LiveServer) -> None:
    started = time.monotonic()
    with strict.connect() as connection, pytest.raises(OSError):  # the connection was reset
        trickle(connection)

    assert 0.3 <= time.monotonic() - started < 4


def trickle(connection: socket.socket) -> None:
    for _ in range(200):
        connection.sendall(b"x")
        time.sleep(0.02)


def test_a_connection_without_a_request_is_closed(strict: LiveServer) -> None:
    with strict.connect() as connection:
        assert connection.recv(1) == b""


def test_one_connection_too_many_is_told_so(strict: LiveServer) -> None:
    with strict.connect(), strict.connect(), strict.connect():
        time.sleep(0.1)
        answer = answer_to(strict, head(line="GET /health HTTP/1.1"))

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "too_many_connections"
    assert answer.headers["retry-after"] == "1"
    strict.wait(lambda: answer_to(strict, head(line="GET /health HTTP/1.1")).status_code == 200)


def test_a_client_that_reads_nothing_is_dropped(strict: LiveServer) -> None:
    strict.engine.script = chatter(batch=250, top=tuple((token, -1.0) for token in range(3, 23)))
    body = json.dumps({"prompt": ["x"] * 128, "stream": True, "ignore_eos": True, "logprobs": 20})
    with strict.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(raw_post("/v1/completions", body.encode()))
        strict.wait(lambda: strict.engine.counters.admitted == 128)

        ended = b'http_requests_total{handler="/v1/completions",method="POST",status="200"} 1.0'

        def dropped() -> bool:
            return ended in answer_to(strict, head(line="GET /metrics HTTP/1.1")).content

        strict.wait(dropped, seconds=15)
    strict.reset()

"""One line for every request, however it ends, and nothing of what was said."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from live import LiveServer, chatter, raw_post, say

from flare.errors import UnavailableError
from flare.server import ServerSettings
from flare.server.logs import JSONFormatter, TextFormatter, configure_logging, logfmt
from flare.testing.scripted_engine import Script

CHAT = "/v1/chat/completions"
SECRET = "xyzzy"


class Lines(logging.Handler):
    """The fields of every request's line."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(record)

    def of(self, request_id: str) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = [r.fields for r in self.all if hasattr(r, "fields")]
        return [line for line in fields if line["id"] == request_id]


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines = Lines()
    root, level = logging.getLogger("flare"), logging.getLogger("flare").level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(lines)
    root.setLevel(level)


def post(server: LiveServer, request_id: str, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": SECRET}], **fields}
    return httpx.post(server.url + CHAT, json=body, headers={"x-request-id": request_id})


def the_line(server: LiveServer, lines: Lines, request_id: str) -> dict[str, Any]:
    server.wait(lambda: bool(lines.of(request_id)))
    time.sleep(0.02)
    (line,) = lines.of(request_id)
    return line


def test_a_success(server: LiveServer, lines: Lines) -> None:
    server.engine.script = say("hello there", cached=4, delay=0.01, admission_delay=0.03)
    usage = post(server, "a-success").json()["usage"]
    line = the_line(server, lines, "a-success")

    assert line["method"] == "POST"
    assert line["path"] == CHAT
    assert (line["status"], line["finish_reason"]) == (200, "stop")
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["output_tokens"] == usage["completion_tokens"]
    assert line["cached_tokens"] == 4
    assert 30 <= line["queue_ms"] <= line["first_token_ms"] <= line["total_ms"] < 5000
    assert 0 < line["tokens_per_s"] < 110
    assert "error_code" not in line
    assert "disconnected" not in line


def test_two_choices(server: LiveServer, lines: Lines) -> None:
    post(server, "two", n=2, max_tokens=2, stream=True)
    line = the_line(server, lines, "two")

    assert (line["finish_reason"], line["output_tokens"]) == ("length", 4)


def test_a_refusal_names_the_field_and_quotes_nothing(server: LiveServer, lines: Lines) -> None:
    post(server, "refused", logit_bias={SECRET: "x"})
    line = the_line(server, lines, "refused")

    assert (line["status"], line["error_code"], line["error_param"]) == (400, "invalid_request", "logit_bias")


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure(server: LiveServer, lines: Lines, stream: bool) -> None:
    server.engine.script = chatter(fail_after=2)
    post(server, f"failed-{stream}", stream=stream)
    line = the_line(server, lines, f"failed-{stream}")

    assert line["status"] == (200 if stream else 500)
    assert (line["error_code"], line["finish_reason"]) == ("execution_failed", "error")


def test_a_refusal_of_the_engine(server: LiveServer, lines: Lines) -> None:
    server.engine.script = lambda submit: Script(tokens=[5], refusal=UnavailableError("queue full"))
    post(server, "full")
    line = the_line(server, lines, "full")

    assert (line["status"], line["error_code"]) == (503, "unavailable")
    assert "finish_reason" not in line


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect(server: LiveServer, lines: Lines, stream: bool) -> None:
    server.engine.script = chatter(delay=0.01)
    body = json.dumps({"messages": [{"role": "user", "content": SECRET}], "stream": stream}).encode()
    request = raw_post(CHAT, body).replace(b"host: x", b"host: x\r\nx-request-id: left-%d" % stream)
    with server.connect() as connection:
        connection.sendall(request)
        server.wait(lambda: server.engine.running == 1)
        time.sleep(0.05)
    line = the_line(server, lines, f"left-{int(stream)}")

    assert line["disconnected"] is True
    assert line["finish_reason"] == "abort"
    assert line.get("status") == (200 if stream else None)


def test_bytes_that_are_no_request(server: LiveServer, lines: Lines) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /x?secret=1 HTTP/1.1\r\nbad header\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"
    server.wait(lambda: any(getattr(r, "fields", {}).get("status") == 400 for r in lines.all))
    (line,) = [r.fields for r in lines.all if hasattr(r, "fields")]

    assert (line["method"], line["path"], line["error_code"]) == ("GET", "/x", "malformed_http")


def test_shutdown_and_the_time_limit(lines: Lines) -> None:
    with LiveServer(ServerSettings(request_timeout=0.3), grace_seconds=0.1) as server:
        server.engine.script = chatter(delay=0.02)
        late = post(server, "late")
        streamed = post(server, "late-stream", stream=True)
        assert the_line(server, lines, "late")["error_code"] == "timeout"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(post, server, "ended")
            server.wait(lambda: server.engine.running == 1)
            server.stop()
            ended = waiting.result()
        server.join()

    assert late.status_code == 504
    assert late.json()["error"]["code"] == "timeout"
    assert "0.3 s" in late.json()["error"]["message"]
    assert '"code":"timeout"' in streamed.text
    assert "[DONE]" not in streamed.text
    assert ended.status_code == 503
    assert the_line(server, lines, "ended")["finish_reason"] == "abort"
    assert server.engine.running == 0


def test_nothing_of_the_conversation_is_logged(server: LiveServer, lines: Lines) -> None:
    server.engine.script = say("a secret answer")
    post(server, "said", stop=[SECRET])
    post(server, "wrong-role", messages=[{"role": SECRET, "content": SECRET}])
    post(server, "wrong-part", messages=[{"role": "user", "content": [{"type": SECRET}]}])
    post(server, "wrong-model", model=SECRET)
    httpx.post(
        server.url + CHAT, content=b'{"' + SECRET.encode(), headers={"content-type": "application/json"}
    )
    httpx.post(server.url + "/tokenize", json={"prompt": SECRET})
    httpx.get(f"{server.url}/health?key={SECRET}")
    server.wait(lambda: len(lines.of("wrong-model")) == 1)

    text = TextFormatter()
    for record in lines.all:
        for line in (text.format(record), JSONFormatter().format(record)):
            assert SECRET not in line
            assert "answer" not in line


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "flare.x", "levelname": "INFO", "msg": message, "created": 0.0})
    vars(made).update(extra)
    return made


def test_the_two_formats() -> None:
    fields = {"id": "a b", "status": 200, "disconnected": True, "path": '/x"\n'}

    assert logfmt(fields) == r'id="a b" status=200 disconnected=true path="/x\"\n"'
    assert TextFormatter().format(record("x\ny")) == "1970-01-01T00:00:00.000Z info flare.x: x y"
    assert json.loads(JSONFormatter().format(record("ignored", fields=fields))) == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "logger": "flare.x",
        **fields,
    }
    assert json.loads(JSONFormatter().format(record("said")))["message"] == "said"


@pytest.mark.parametrize("form", ["text", "json"])
def test_configured_lines_go_to_standard_error(
    form: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(root, "level", root.level)
    configure_logging(form, "info")
    try:
        logging.getLogger("flare.y").debug("hidden")
        try:
            raise KeyError("k")
        except KeyError:
            logging.getLogger("flare.y").exception("bad\nnews")
    finally:
        root.handlers = []
    out, err = capsys.readouterr()

    assert out == ""
    assert "hidden" not in err
    if form == "json":
        line = json.loads(err)
        assert line["message"] == "bad\nnews"
        assert "KeyError" in line["exception"]
    else:
        assert "error flare.y: bad news\nTraceback" in err

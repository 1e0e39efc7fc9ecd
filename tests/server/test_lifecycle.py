"""Admission, failures, health, shutdown."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time

import httpx
import openai
import pytest
from live import MODEL, TOKENIZER, LiveServer, chatter, raw_post, say

from flare.errors import ExecutionError, FlareError, RequestError, UnavailableError
from flare.frontend import ContextLengthError
from flare.server import ServerSettings, listen
from flare.testing.scripted_engine import Script

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (RequestError("too many logprobs", field="logprobs"), 400, "invalid_request"),
        (ContextLengthError("too long"), 400, "context_length_exceeded"),
        (UnavailableError("queue full"), 503, "unavailable"),
        (ExecutionError("device lost"), 500, "execution_failed"),
        (RuntimeError("secret detail"), 500, "execution_failed"),
    ],
)
def test_refusals_of_the_engine_are_http_errors(
    server: LiveServer,
    http: httpx.Client,
    refusal: Exception,
    status: int,
    code: str,
    n: int,
    stream: bool,
) -> None:
    server.engine.script = lambda submit: Script(tokens=[5], refusal=refusal)

    response = http.post(CHAT, json={"messages": USER, "stream": stream, "n": n})

    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert ("retry-after" in response.headers) == (status == 503)
    assert "secret" not in response.text
    assert response.headers["x-request-id"]


def test_headers_are_not_sent_before_admission(server: LiveServer) -> None:
    server.engine.script = say("hello", admission_delay=0.3, delay=0.05)
    body = json.dumps({"messages": USER, "stream": True}).encode()
    with server.connect() as connection:
        connection.sendall(raw_post(CHAT, body))
        connection.settimeout(0.15)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(10)
        assert connection.recv(15).startswith(b"HTTP/1.1 200 OK")


def test_a_group_streams_from_its_first_admission_on(
    server: LiveServer, openai_client: openai.OpenAI
) -> None:
    server.engine.script = lambda submit: Script(
        tokens=[*TOKENIZER.encode("text"), 2],
        admission_delay=0.4 if submit.request_id.endswith("-0") else 0.0,
    )
    first: dict[int, float] = {}
    started = time.monotonic()
    for chunk in openai_client.chat.completions.create(model=MODEL, messages=USER, n=2, stream=True):
        first.setdefault(chunk.choices[0].index, time.monotonic() - started)

    assert first[1] < 0.3 < first[0]


@pytest.mark.parametrize("n", [1, 2])
def test_a_failure_while_streaming_is_the_last_event(server: LiveServer, http: httpx.Client, n: int) -> None:
    server.engine.script = chatter(fail_after=3)

    with http.stream("POST", CHAT, json={"messages": USER, "stream": True, "n": n}) as response:
        lines = [line for line in response.iter_lines() if line]

    assert response.status_code == 200
    assert "[DONE]" not in lines[-1]
    error = json.loads(lines[-1].removeprefix("data: "))["error"]
    assert error == {
        "message": "execution failed",
        "type": "server_error",
        "param": None,
        "code": "execution_failed",
    }
    server.wait(lambda: server.engine.running == 0)


def test_the_client_library_raises_a_failure_while_streaming(
    server: LiveServer, openai_client: openai.OpenAI
) -> None:
    server.engine.script = chatter(fail_after=3)
    chunks = openai_client.chat.completions.create(model=MODEL, messages=USER, stream=True)

    assert next(chunks).choices[0].delta.role == "assistant"
    with pytest.raises(openai.APIError, match="execution failed"):
        list(chunks)


def test_a_failure_of_a_whole_response_is_a_500_and_is_logged_with_the_request_id(
    server: LiveServer, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    server.engine.script = chatter(fail_after=3)

    with caplog.at_level(logging.INFO, "flare.server"):
        response = http.post(CHAT, json={"messages": USER}, headers={"x-request-id": "my-id.7"})

    assert response.status_code == 500
    assert response.headers["x-request-id"] == "my-id.7"
    assert any(
        "my-id.7" in record.message and "execution_failed" in record.message for record in caplog.records
    )


def test_ignored_fields_are_logged(
    server: LiveServer, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flare.server"):
        for _ in range(2):
            http.post(CHAT, json={"messages": USER, "made_up": 1})

    levels = [record.levelname for record in caplog.records if "fields: 'made_up'" in record.message]
    assert levels == ["WARNING", "INFO"]


@pytest.mark.parametrize("sent", ["", "has space", "x" * 129, "tab\tid", "é"])
def test_odd_request_ids_are_replaced(server: LiveServer, http: httpx.Client, sent: str) -> None:
    response = http.get("/health", headers={"x-request-id": sent.encode()})  # type: ignore[dict-item]

    assert re.fullmatch(r"req-[0-9a-f]{24}", response.headers["x-request-id"])


def test_one_failing_choice_ends_the_whole_response(server: LiveServer, http: httpx.Client) -> None:
    server.engine.script = lambda submit: chatter(
        delay=0.005, fail_after=3 if submit.request_id.endswith("-1") else None
    )(submit)

    assert http.post(CHAT, json={"messages": USER, "n": 3}).status_code == 500
    server.wait(lambda: server.engine.running == 0)
    assert server.engine.counters.cancelled == 2


def test_a_cancellation_by_the_engine_is_no_success(server: LiveServer, http: httpx.Client) -> None:
    server.engine.script = chatter(delay=0.01)
    threading.Timer(
        0.2,
        server.call,
        [lambda: [generation.cancel() for generation in list(server.engine._live)]],
    ).start()

    assert http.post(CHAT, json={"messages": USER}).status_code == 500


def test_the_server_stays_responsive_while_a_long_prompt_is_tokenized(
    server: LiveServer, http: httpx.Client
) -> None:
    done = threading.Event()

    def long_prompt() -> None:
        body = {"prompt": "lorem ipsum dolor " * 150_000}
        assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 400
        done.set()

    thread = threading.Thread(target=long_prompt)
    thread.start()
    began, slowest = time.monotonic(), 0.0
    while not done.wait(0.01):
        started = time.monotonic()
        assert http.get("/health").status_code == 200
        slowest = max(slowest, time.monotonic() - started)
    thread.join()
    assert slowest < (time.monotonic() - began) / 3


def test_a_body_beyond_the_limit_is_refused() -> None:
    settings = ServerSettings(max_body_bytes=2000)
    with LiveServer(settings) as small, httpx.Client(base_url=small.url) as http:
        declared = http.post("/v1/completions", json={"prompt": "x" * 3000})
        chunked = http.post(
            "/v1/completions",
            content=(part for part in [b'{"prompt": "', b"x" * 3000, b'"}']),
            headers={"content-type": "application/json"},
        )
        fits = http.post("/v1/completions", json={"prompt": "x" * 100})
    for refused in (declared, chunked):
        assert refused.status_code == 413
        assert refused.json()["error"]["code"] == "body_too_large"
    assert fits.status_code == 200


def test_readiness_and_death() -> None:
    with LiveServer() as server, httpx.Client(base_url=server.url, timeout=10) as http:
        ready, server.engine.ready = server.engine.ready, None
        assert http.get("/health").status_code == 200
        assert http.get("/ready").status_code == 503
        assert http.get("/ready").json()["reason"] == "the engine is still loading"
        assert http.post(CHAT, json={"messages": USER}).status_code == 503
        server.engine.ready = ready
        assert http.get("/ready").status_code == 200

        server.engine.script = chatter(delay=0.01)
        with http.stream("POST", CHAT, json={"messages": USER, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            server.call(lambda: server.engine.die("the engine process ended with code -9"))
            last = [line for line in lines if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "execution_failed"
        for path in ("/health", "/ready"):
            assert http.get(path).status_code == 503
            assert http.get(path).json()["reason"] == "the engine died"
        refused = http.post(CHAT, json={"messages": USER})
        assert refused.status_code == 503
        assert refused.headers["retry-after"]


def test_zero_temperature_can_be_clamped() -> None:
    with LiveServer(ServerSettings(zero_temperature="clamp")) as server:
        answer = httpx.post(f"{server.url}{CHAT}", json={"messages": USER, "temperature": 0})

        assert answer.status_code == 200
        assert server.engine.counters.submissions[0].sampling.temperature == 0.01


def test_shutdown_lets_streams_end_and_takes_no_more() -> None:
    with LiveServer() as server, httpx.Client(base_url=server.url, timeout=10) as http:
        server.engine.script = say("a rather long answer " * 3, delay=0.02)
        http.get("/health")
        with httpx.stream("POST", f"{server.url}{CHAT}", json={"messages": USER, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            server.stop()
            time.sleep(0.1)
            # An open connection is still answered, a new one is not.
            refused = http.post(CHAT, json={"messages": USER})
            assert refused.status_code == 503
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{server.url}/health")
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        server.join()
        assert server.engine.counters.cancelled == 0


@pytest.mark.parametrize("stream", [False, True])
def test_behind_the_grace_requests_end_with_an_error(stream: bool) -> None:
    with LiveServer(grace_seconds=0.3) as server:
        server.engine.script = chatter(delay=0.05, admission_delay=0.01)
        threading.Timer(0.3, server.stop).start()
        with httpx.stream(
            "POST", f"{server.url}{CHAT}", json={"messages": USER, "stream": stream}, timeout=20
        ) as response:
            lines = [line for line in response.iter_lines() if line]

        assert response.status_code == (200 if stream else 503)
        assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "unavailable"
        server.join()
        assert server.engine.running == 0
        assert server.engine.counters.cancelled == 1


def test_a_client_that_stopped_reading_does_not_hold_up_shutdown() -> None:
    with LiveServer(grace_seconds=0.1) as server:
        server.engine.script = chatter(batch=50)
        body = json.dumps({"prompt": ["x" * 20] * 128, "stream": True, "echo": True, "logprobs": None})
        with server.connect() as connection:
            connection.sendall(raw_post("/v1/completions", body.encode()))
            server.wait(lambda: server.engine.counters.admitted == 128)
            started = time.monotonic()
            server.stop()
            server.join()
        assert time.monotonic() - started < 8


def test_the_started_callback_gets_the_bound_address() -> None:
    with LiveServer() as server:
        assert len(server.starts) == 1
        host, port = server.address
        assert host == "127.0.0.1"
        assert port > 0


def test_a_taken_port_is_a_typed_error() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(FlareError, match="cannot listen") as caught:
        listen("127.0.0.1", taken.getsockname()[1])
    assert caught.value.field == "port"


def test_small_writes_are_not_held_back() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

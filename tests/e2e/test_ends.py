"""How a server ends: a killed engine, signals, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from flare_run import FlareRun

pytestmark = pytest.mark.alone

STREAM = {"prompt": "go on", "stream": True, "ignore_eos": True, "max_tokens": 240}


def events(lines: Iterator[str]) -> list[str]:
    return [line.removeprefix("data: ") for line in lines if line]


def test_the_ready_line_is_all_of_standard_output(tiny_core: Path) -> None:
    with FlareRun(tiny_core, "--served-model-name", "mine") as server:
        assert httpx.get(f"{server.url}/v1/models").json()["data"][0]["id"] == "mine"
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"}).status_code == 200
        server.terminate()
        status, rest = server.wait()

    assert (status, rest, server.errors()) == (0, "", "")


def test_a_killed_engine_ends_every_stream_with_an_error(tiny_core: Path) -> None:
    with FlareRun(tiny_core) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        with (
            http.stream("POST", "/v1/completions", json=STREAM) as one,
            http.stream("POST", "/v1/completions", json=STREAM) as two,
        ):
            streams = [one.iter_lines(), two.iter_lines()]
            for lines in streams:
                next(lines)
            # Stopped first, so that neither stream can complete before the kill is seen.
            os.kill(server.engine.pid, signal.SIGSTOP)
            os.kill(server.engine.pid, signal.SIGKILL)
            for lines in streams:
                received = events(lines)
                assert "[DONE]" not in received
                assert json.loads(received[-1])["error"]["code"] == "execution_failed"
        health = http.get("/health")
        refused = http.post("/v1/completions", json={"prompt": "x"})
        server.terminate()
        server.wait()

    assert (health.status_code, health.json()["reason"]) == (503, "the engine died")
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "server_error"
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize("end", [FlareRun.terminate, FlareRun.interrupt], ids=["SIGTERM", "ctrl-C"])
def test_a_signal_lets_a_running_stream_complete(tiny_core: Path, end) -> None:  # type: ignore[no-untyped-def]
    with FlareRun(tiny_core) as server:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=STREAM, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            end(server)
            received = events(lines)
        status, rest = server.wait()

    assert received[-1] == "[DONE]"
    assert json.loads(received[-2])["choices"][0]["finish_reason"] == "length"
    assert (status, rest) == (0, "")
    assert "Traceback" not in server.errors()


def test_the_engine_follows_a_killed_server(tiny_core: Path) -> None:
    with FlareRun(tiny_core) as server:
        server.process.kill()
        status, _ = server.wait()

    assert status == -signal.SIGKILL

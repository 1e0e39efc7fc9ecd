"""What an operator sees of `flare run`: keys, probes, metrics, log lines, the service manager, draining."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from flare_run import FlareRun, run_to_end

pytestmark = pytest.mark.alone

TEXT = "/v1/completions"
KEY = {"authorization": "Bearer e2e-key"}
REQUESTS = 24


def stream(url: str, number: int, connected: threading.Barrier) -> str:
    """The last event of a long stream, or the refusal."""
    body = {"prompt": "go on", "stream": True, "ignore_eos": True, "max_tokens": 240}
    headers = {**KEY, "x-request-id": f"load-{number}"}
    with httpx.Client(base_url=url, timeout=60) as http:
        http.get("/health")
        connected.wait(30)
        with http.stream("POST", TEXT, json=body, headers=headers) as answer:
            return [line for line in answer.iter_lines() if line][-1]


def test_a_drain_under_load(tiny_core: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# for tests\ne2e-key\n")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(20)
    options = ("--api-key-file", str(keys), "--log-level", "info", "--log-format", "json")
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "FLARE_MAX_CONNECTIONS": "100"}

    with (
        FlareRun(tiny_core, *options, environment=environment) as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
        ThreadPoolExecutor(REQUESTS) as pool,
        manager,
    ):
        assert manager.recv(100) == b"READY=1"
        assert http.get("/v1/models").status_code == 401
        core = http.get("/version").json()["core"]
        assert (
            core["digest"] == json.loads(run_to_end("inspect", tiny_core, "--json").stdout)["file"]["digest"]
        )

        connected = threading.Barrier(REQUESTS)
        load = [pool.submit(stream, server.url, number, connected) for number in range(REQUESTS)]
        running(http)
        assert http.get("/ready").status_code == 200
        server.terminate()
        assert manager.recv(100) == b"STOPPING=1"
        # On an open connection; listeners are closed.
        assert http.get("/ready").json()["reason"] == "the server is shutting down"
        assert http.get("/health").status_code == 200
        assert http.post(TEXT, json={"prompt": "x"}, headers=KEY).status_code == 503
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")
        server.terminate()
        ends = [one.result(timeout=30) for one in load]
        assert server.wait()[0] == 0
        lines = log_lines(server.errors())

    assert sum("[DONE]" in end for end in ends) < REQUESTS
    for number, end in enumerate(ends):
        (line,) = [line for line in lines if line.get("id") == f"load-{number}"]
        if "[DONE]" in end:
            assert (line["status"], line["finish_reason"], line["output_tokens"]) == (200, "length", 240)
        else:
            assert "unavailable" in end
            assert line["error_code"] == "unavailable"


def running(http: httpx.Client) -> None:
    """Wait until the engine runs and holds back requests, as its metrics say."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        text = http.get("/metrics").text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        found = {name.partition("{")[0]: float(value) for name, value in values.items()}
        if found["vllm:num_requests_running"] > 0 and found["flare:num_requests_waiting"] > 0:
            assert found["flare:engine_up"] == 1
            assert found["flare:kv_cache_usage_perc"] > 0
            assert found["flare:engine_resident_memory_bytes"] > 1e7
            assert found["process_resident_memory_bytes"] > 1e7
            return
        time.sleep(0.02)
    raise AssertionError("the load never ran")


def log_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (("--api-key-file", "/nowhere/keys"), {}, "/nowhere/keys"),
        (("--api-key", ""), {}, "API key must be"),
        ((), {"FLARE_IO_TIMEOUT": "soon"}, "FLARE_IO_TIMEOUT"),
    ],
)
def test_unusable_options(
    tiny_core: Path,
    options: tuple[str, ...],
    environment: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setitem(os.environ, name, value)
    result = run_to_end("run", tiny_core, "--port", "0", *options)

    assert result.returncode in (1, 2)
    assert words in result.stderr
    assert "Traceback" not in result.stderr

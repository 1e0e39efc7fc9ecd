"""`flare run --restart`: a killed engine costs its open requests and nothing else."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
from flare_run import FlareRun

pytestmark = pytest.mark.alone

STREAM = {"prompt": "go on", "stream": True, "ignore_eos": True, "max_tokens": 240}
WHOLE = {"prompt": "go on", "ignore_eos": True, "max_tokens": 240}


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Restarting(FlareRun):
    """With the restarted engine's process, and what the front process holds."""

    def find_engine(self) -> psutil.Process:
        children = psutil.Process(self.process.pid).children()
        (self.engine,) = (child for child in children if "flare.engine" in child.cmdline())
        return self.engine

    def held(self, sockets: Path) -> tuple[int, int, int]:
        """Descriptors, threads and socket directories."""
        front = psutil.Process(self.process.pid)
        return front.num_fds(), front.num_threads(), len(list(sockets.glob("flare-*")))

    def holds_no_more(self, sockets: Path, then: tuple[int, int, int]) -> bool:
        return all(now <= before for now, before in zip(self.held(sockets), then, strict=True))


def kill_under_load(server: Restarting, http: httpx.Client) -> None:
    with ThreadPoolExecutor(3) as threads:
        with (
            http.stream("POST", "/v1/completions", json=STREAM) as one,
            http.stream("POST", "/v1/completions", json=STREAM) as two,
        ):
            streams = [one.iter_lines(), two.iter_lines()]
            for lines in streams:
                next(lines)
            # Stopped first, so that nothing can complete before the kill is seen.
            server.engine.suspend()
            whole = [threads.submit(http.post, "/v1/completions", json=WHOLE) for _ in range(3)]
            time.sleep(0.1)
            os.kill(server.engine.pid, signal.SIGKILL)
            for lines in streams:
                received = [line.removeprefix("data: ") for line in lines if line]
                assert "[DONE]" not in received
                assert json.loads(received[-1])["error"]["code"] == "execution_failed"
        health = http.get("/health")
        refused = http.post("/v1/completions", json=WHOLE)
        for answer in (health, refused, *(future.result() for future in whole)):
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1


def test_the_same_port_serves_again(tiny_core: Path, tmp_path: Path, complete: bool) -> None:
    text = {"prompt": "once", "seed": 5, "max_tokens": 8}
    with Restarting(tiny_core, "--restart", environment={"TMPDIR": str(tmp_path)}) as server:
        address = f"{server.url}/v1/completions"
        want = httpx.post(address, json=text).json()["choices"]
        baseline: tuple[int, int, int] | None = None  # of a server that has seen such a load
        for _ in range(5 if complete else 2):
            with httpx.Client(base_url=server.url, timeout=60) as http:
                kill_under_load(server, http)
                until(lambda: http.get("/health").status_code == 200)
                server.find_engine()
                assert http.post(address, json=text).json()["choices"] == want
            if baseline is None:
                time.sleep(0.2)
                baseline = server.held(tmp_path)
            until(partial(server.holds_no_more, tmp_path, baseline))
        server.terminate()
        status, rest = server.wait()

    assert (status, rest) == (0, "")
    assert baseline is not None
    assert baseline[2] == 1  # one socket directory
    assert list(tmp_path.glob("flare-*")) == []
    assert "the engine process was killed by signal 9; starting it again in 0.0 s" in server.errors()
    assert "the engine serves again" in server.errors()


def test_a_core_that_is_gone_ends_the_server_after_some_attempts(tiny_core: Path, tmp_path: Path) -> None:
    """The policy is shortened through a start script of its own: ten attempts take minutes."""
    core = tmp_path / "own.core.safetensors"
    core.hardlink_to(tiny_core)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import flare.engine.supervisor as s\n"
        "from functools import partial\n"
        "s.RestartPolicy = partial(s.RestartPolicy, deaths=2, delay_s=0.01)\n"
    )
    with Restarting(core, "--restart", environment={"PYTHONPATH": str(site)}) as server:
        core.unlink()
        server.engine.kill()
        status, _ = server.wait(60)

    assert status == 1
    last = server.errors().splitlines()[-1]
    assert last.startswith("flare: ")
    assert "death 2 within 300 s, not started again" in last

"""Starting a server, timing it until it is ready, and stopping all of it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from loadtest.errors import BenchmarkError

STOP_SECONDS = 30.0
SHORTEST_POLL, POLL_SHARE = 0.02, 0.01


@contextlib.contextmanager
def started_server(command: str, ready_url: str, timeout: float) -> Iterator[float]:
    """Run `command` (words as a shell splits them), wait for 200 from `ready_url`, stop it on exit.

    Gives the seconds from spawning to the first 200, to within 1 percent (at least 20 ms). The server's
    whole process group is stopped. Raises: BenchmarkError when something answers already, the process ends,
    or `timeout` seconds pass; the message has the end of the server's output.
    """
    if _answers(ready_url):
        raise BenchmarkError(f"another server answers at {ready_url} already")
    with tempfile.NamedTemporaryFile(prefix="benchmark-server-", suffix=".log") as log:
        spawned = time.perf_counter()
        process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield _wait_ready(process, ready_url, spawned, timeout, Path(log.name))
        finally:
            _stop(process)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _wait_ready(
    process: subprocess.Popen[bytes], url: str, spawned: float, timeout: float, log: Path
) -> float:
    with httpx.Client(timeout=5, trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if client.get(url).status_code == 200:
                    return time.perf_counter() - spawned
            elapsed = time.perf_counter() - spawned
            if process.poll() is not None:
                raise BenchmarkError(f"the server ended with {process.returncode}:\n{_tail(log)}")
            if elapsed > timeout:
                raise BenchmarkError(f"not ready after {timeout:.0f} s:\n{_tail(log)}")
            # Frequent questions would slow a server that starts on the same cores.
            time.sleep(max(SHORTEST_POLL, POLL_SHARE * elapsed))


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    # Children may outlive their parent; the group is gone when nobody is left.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

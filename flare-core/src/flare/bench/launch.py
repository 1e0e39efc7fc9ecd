"""Starting a server, timing it until it is ready, and stopping all of it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from flare.bench.errors import BenchmarkError

STOP_SECONDS = 30.0
SHORTEST_POLL, POLL_SHARE = 0.02, 0.01
READY_LINE = re.compile(rb" ready on (http://\S+) in [0-9.]+ s\n")


@dataclass(frozen=True)
class Started:
    """A server that takes requests: its address, its process, its output so far, and the seconds from
    spawning it to ready, to within 1 percent (at least 20 ms)."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    seconds: float


@contextlib.contextmanager
def started_core(
    core: Path, *options: str, timeout: float = 900.0, environment: dict[str, str] | None = None
) -> Iterator[Started]:
    """`flare run CORE` on a free port with more variables in its environment, stopped on exit. Raises:
    BenchmarkError as `started_command` does."""
    command = [sys.executable, "-m", "flare", "run", str(core), "--port", "0", *options]

    def ready(log: Path) -> str | None:
        line = READY_LINE.search(log.read_bytes())
        return None if line is None else line[1].decode()

    with _started(command, ready, timeout, environment) as server:
        yield server


@contextlib.contextmanager
def started_command(command: str, url: str, ready_path: str, timeout: float = 900.0) -> Iterator[Started]:
    """Run `command` (words as a shell splits them), wait for 200 from `ready_path` at `url`, stop it on exit.

    The server's whole process group is stopped. Raises: BenchmarkError when something answers already, the
    process ends or cannot be started, or `timeout` seconds pass; the message has the end of its output.
    """
    ready_url = f"{url.rstrip('/')}/{ready_path.lstrip('/')}"
    with httpx.Client(timeout=5, trust_env=False) as client:
        if _answers(client, ready_url):
            raise BenchmarkError(f"another server answers at {ready_url} already", field="url")
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise BenchmarkError(f"{command!r} is not a command: {error}", field="start") from error

        def ready(log: Path) -> str | None:
            return url if _answers(client, ready_url) else None

        with _started(words, ready, timeout) as server:
            yield server


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.TransportError:
        return False


@contextlib.contextmanager
def _started(
    command: list[str],
    ready: Callable[[Path], str | None],
    timeout: float,
    environment: dict[str, str] | None = None,
) -> Iterator[Started]:
    with tempfile.NamedTemporaryFile(prefix="flare-bench-", suffix=".log") as log:
        spawned = time.perf_counter()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        except OSError as error:
            raise BenchmarkError(
                f"{command[0]} cannot be started: {error.strerror}", field="start"
            ) from error
        try:
            path = Path(log.name)
            url = _wait_ready(process, lambda: ready(path), spawned, timeout, path)
            yield Started(url, process, path, time.perf_counter() - spawned)
        finally:
            _stop(process)


def _wait_ready(
    process: subprocess.Popen[bytes],
    ready: Callable[[], str | None],
    spawned: float,
    timeout: float,
    log: Path,
) -> str:
    while True:
        url = ready()
        if url is not None:
            return url
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

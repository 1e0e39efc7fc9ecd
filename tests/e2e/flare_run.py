"""`flare run` as a person starts it: a process, a port, one line on standard output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import openai
import psutil

FLARE = str(Path(sys.executable).with_name("flare"))
READY = re.compile(r"flare: (?P<name>\S+) ready on (?P<url>http://\S+) in [0-9.]+ s\n")


def run_to_end(*arguments: str | Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """A `flare` command that is expected to end by itself."""
    return subprocess.run(
        [FLARE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )


class FlareRun:
    """Use as a context: inside it the server is ready, after it no process of it is left.

    The process leads a group of its own, as a terminal would arrange, so that `interrupt` can play ctrl-C.
    `threads` is 1 because a tiny model gains nothing from more, while compute threads that wait for each
    other on a busy machine make every step tens of times slower. None leaves the choice to the product.
    """

    def __init__(
        self, core: Path, *options: str, threads: int | None = 1, environment: dict[str, str] | None = None
    ) -> None:
        if threads is not None:
            options = (*options, "--threads", str(threads))
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (read until the object is dropped)
        self.process = subprocess.Popen(
            [FLARE, "run", str(core), "--port", "0", "--log-level", "warning", *options],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )

    def __enter__(self) -> FlareRun:
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        ready = READY.fullmatch(self.line)
        if ready is None:
            self.kill()
            raise AssertionError(f"not a ready line: {self.line!r}; standard error: {self.errors()}")
        self.name, self.url = ready["name"], ready["url"]
        children = psutil.Process(self.process.pid).children()
        self.engine = next(child for child in children if "flare.engine" in child.cmdline())
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def client(self) -> openai.OpenAI:
        """The official client, without retries that would hide failures."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60)

    def terminate(self) -> None:
        """As a service manager ends it: SIGTERM to the front process."""
        self.process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """As ctrl-C does: SIGINT to every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self, seconds: float = 30) -> tuple[int, str]:
        """Exit status and what standard output held behind the ready line. No process may be left."""
        rest, _ = self.process.communicate(timeout=seconds)
        _, left = psutil.wait_procs([self.engine], timeout=5)
        assert not left, f"the engine process outlived the server: {left}"
        return self.process.returncode, rest

    def errors(self) -> str:
        """Standard error so far."""
        self._errors.seek(0)
        return self._errors.read()

    def kill(self) -> None:
        """End what is left of this server's own process group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

"""Starting a server: the time is its own, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fake_openai import FakeServer

from flare.bench import launch
from flare.bench.errors import BenchmarkError
from flare.bench.launch import started_command, started_core

PROGRAM = Path(__file__).with_name("fake_openai.py")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
        return number


def wait_until(condition: Callable[[], bool], message: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_ready_time_and_the_end_of_the_whole_group(port: int, tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    command = f"{sys.executable} {PROGRAM} {port} 0.3 {pid_file}"
    began = time.perf_counter()
    with started_command(command, f"http://127.0.0.1:{port}", "/health", 30) as server:
        assert 0.3 <= server.seconds <= time.perf_counter() - began
        child = int(pid_file.read_text())
        assert not gone(child)
    wait_until(lambda: gone(child), "a child outlived the server")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_server_that_ends_shows_its_last_words(port: int) -> None:
    command = f"{sys.executable} -c \"print('no such core'); raise SystemExit(3)\""
    with (
        pytest.raises(BenchmarkError, match=r"(?s)ended with 3.*no such core"),
        started_command(command, f"http://127.0.0.1:{port}", "/health", 30),
    ):
        pytest.fail("never ready")


def test_a_server_that_does_not_get_ready_is_stopped(port: int, tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    command = f"{sys.executable} {PROGRAM} {port} 60 {pid_file}"
    with (
        pytest.raises(BenchmarkError, match=r"(?s)not ready after 3 s.*loading"),
        started_command(command, f"http://127.0.0.1:{port}", "health", 3.0),
    ):
        pytest.fail("never ready")
    wait_until(lambda: gone(int(pid_file.read_text())), "a child outlived the server")


def test_another_server_is_not_measured_by_mistake(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.subprocess, "Popen", lambda *_, **__: pytest.fail("spawned"))
    with (
        pytest.raises(BenchmarkError, match="another server answers"),
        started_command("true", server.url, "/health", 30),
    ):
        pytest.fail("never ready")


@pytest.mark.parametrize("fault", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_client_stops_its_server(port: int, tmp_path: Path, fault: signal.Signals) -> None:
    pid_file = tmp_path / "child"
    url = f"http://127.0.0.1:{port}"
    server = f"{sys.executable} {PROGRAM} {port} 60 {pid_file}"
    client = subprocess.Popen(
        [sys.executable, "-m", "flare", "bench", url, "--start", server], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text() != "", "the server did not start")
        client.send_signal(fault)
        assert client.wait(20) != 0
        wait_until(lambda: gone(int(pid_file.read_text())), "the server outlived the client")
    finally:
        client.kill()
        client.wait()
        # A client that did not stop its server must not leave it to the next test either.
        if pid_file.exists() and not gone(child := int(pid_file.read_text())):
            os.killpg(os.getpgid(child), signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "message"),
    [("no-such-program --serve", "no-such-program cannot be started"), ("flare 'run", "is not a command")],
)
def test_a_command_that_cannot_start_is_an_error(port: int, command: str, message: str) -> None:
    with (
        pytest.raises(BenchmarkError, match=message),
        started_command(command, f"http://127.0.0.1:{port}", "/health"),
    ):
        pytest.fail("never ready")


def test_a_core_that_cannot_be_served_shows_why(tmp_path: Path) -> None:
    core = tmp_path / "damaged.core.safetensors"
    core.write_bytes(b"not a core")
    with pytest.raises(BenchmarkError, match=r"(?s)ended with 1.*flare:"), started_core(core):
        pytest.fail("never ready")

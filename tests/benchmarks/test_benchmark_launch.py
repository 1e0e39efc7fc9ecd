"""Starting a server: the time is its own, and nothing of it is left."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import psutil
import pytest
from fake_openai import FakeServer
from loadtest import launch
from loadtest.errors import BenchmarkError
from loadtest.launch import started_server

PROGRAM = Path(__file__).with_name("fake_openai.py")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
        return number


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_ready_time_and_the_end_of_the_whole_group(port: int, tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    command = f"{sys.executable} {PROGRAM} {port} 0.3 {pid_file}"
    began = time.perf_counter()
    with started_server(command, f"http://127.0.0.1:{port}/health", 30) as seconds:
        assert 0.3 <= seconds <= time.perf_counter() - began
        child = int(pid_file.read_text())
        assert not gone(child)
    deadline = time.monotonic() + 5
    while not gone(child):
        assert time.monotonic() < deadline, "a child outlived the server"
        time.sleep(0.01)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_server_that_ends_shows_its_last_words(port: int) -> None:
    command = f"{sys.executable} -c \"print('no such core'); raise SystemExit(3)\""
    with (
        pytest.raises(BenchmarkError, match=r"(?s)ended with 3.*no such core"),
        started_server(command, f"http://127.0.0.1:{port}/health", 30),
    ):
        pytest.fail("never ready")


def test_a_server_that_does_not_get_ready_is_stopped(port: int, tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    command = f"{sys.executable} {PROGRAM} {port} 60 {pid_file}"
    with (
        pytest.raises(BenchmarkError, match=r"(?s)not ready after 1 s.*loading"),
        started_server(command, f"http://127.0.0.1:{port}/health", 1.0),
    ):
        pytest.fail("never ready")
    deadline = time.monotonic() + 5
    while not gone(int(pid_file.read_text())):
        assert time.monotonic() < deadline, "a child outlived the server"
        time.sleep(0.01)


def test_another_server_is_not_measured_by_mistake(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.subprocess, "Popen", lambda *_, **__: pytest.fail("spawned"))
    with (
        pytest.raises(BenchmarkError, match="another server answers"),
        started_server("true", f"{server.url}/health", 30),
    ):
        pytest.fail("never ready")

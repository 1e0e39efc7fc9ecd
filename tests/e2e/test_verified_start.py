"""`flare run --verify`: what fails verification never opens its port."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from flare_run import FLARE, FlareRun
from rewritten_core import rewrite

from flare.corefile import CoreReader, Role

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def changed_core(tiny_core: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One byte of a weight is another, and every checksum is right."""

    def flip(data: bytearray) -> None:
        data[len(data) // 2 + 3] ^= 0x80

    with CoreReader(tiny_core) as reader:
        weights = [spec for spec in reader.tensors.values() if spec.role is Role.WEIGHT]
        name = next(spec.name for spec in weights if "qkv" in spec.name)
    target = tmp_path_factory.mktemp("changed") / "changed.core.safetensors"
    return rewrite(tiny_core, target, tensors={name: flip})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def test_a_core_that_is_not_itself_is_refused_with_a_closed_port(changed_core: Path) -> None:
    port = free_port()
    command = [FLARE, "run", changed_core, "--port", str(port), "--threads", "1", "--verify"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    opened = False
    while process.poll() is None:
        with socket.socket() as probe:
            opened |= probe.connect_ex(("127.0.0.1", port)) == 0
        time.sleep(0.01)
    out, errors = process.communicate(timeout=30)

    assert (process.returncode, out, opened) == (1, "", False)
    lines = errors.splitlines()
    assert any(line.startswith("flare verify: checksums   ok") for line in lines)
    assert lines[-1].startswith(f"flare: {changed_core}: verification failed: oracle: ")


def test_a_core_that_is_itself_is_served(tiny_core: Path, changed_core: Path) -> None:
    with FlareRun(tiny_core, "--verify") as server:
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"}).status_code == 200
        lines = [line for line in server.errors().splitlines() if line.startswith("flare verify: ")]
    assert len(lines) == 7
    assert lines[-1].split()[2:4] == ["oracle", "ok"]

    with FlareRun(changed_core) as server:  # it loads: only verification tells
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_signal_during_verification_ends_it(tiny_core: Path) -> None:
    command = [FLARE, "run", tiny_core, "--port", "0", "--verify"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("flare verify: ")
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=30)

    assert "Traceback" not in errors
    assert (process.returncode, out) in ((0, ""), (-signal.SIGTERM, ""))

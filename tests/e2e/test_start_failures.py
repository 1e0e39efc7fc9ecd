"""What cannot be served says so in one line, with exit status 1 and nothing left running."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import psutil
import pytest
from flare_run import run_to_end
from safetensors.numpy import save_file

pytestmark = pytest.mark.alone


def refused(*arguments: str | Path) -> str:
    """The one line on standard error of a `flare run` that does not start."""
    result = run_to_end("run", *arguments)
    lines = result.stderr.splitlines()
    assert (result.returncode, result.stdout) == (1, "")
    assert len(lines) == 1, result.stderr
    mine = str(arguments[0])
    for process in psutil.process_iter(["cmdline"]):
        assert mine not in (process.info["cmdline"] or []), "a process is left"
    return lines[0]


def test_a_missing_core(tmp_path: Path) -> None:
    path = tmp_path / "missing.core.safetensors"

    assert refused(path).startswith(f"flare: {path} does not exist")


def test_a_directory(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"flare: {tmp_path} is not a file"


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.999])
def test_a_truncated_core(tiny_core: Path, tmp_path: Path, kept: float) -> None:
    whole = tiny_core.read_bytes()
    path = tmp_path / "cut.core.safetensors"
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])

    assert "truncated" in refused(path)


def test_a_foreign_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros(4, np.float32)}, path)

    assert "not a runtime core" in refused(path)


def test_a_port_in_use(tiny_core: Path, tmp_path: Path) -> None:
    # Under a name of its own: other tests serve the shared core at the same time.
    core = tmp_path / "own.core.safetensors"
    core.hardlink_to(tiny_core)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused(core, "--port", str(port))

    assert message.startswith(f"flare: cannot listen on 127.0.0.1 port {port}")


@pytest.mark.parametrize("option", [("--port", "99999"), ("--threads", "0"), ("--max-waiting", "0")])
def test_an_impossible_option_is_a_usage_error(tiny_core: Path, option: tuple[str, str]) -> None:
    result = run_to_end("run", tiny_core, *option)

    assert result.returncode == 2
    assert option[0] in result.stderr
    assert "Traceback" not in result.stderr

"""The driver of a GPU is initialised early, for cores that need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rewritten_core import rewrite

from flare.engine.early_driver import initialise_early, is_for_a_gpu

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def core_for(device: str, path: Path) -> str:
    source = GOLDEN / "0.1.0-tiny-cpu.core.safetensors"
    return str(rewrite(source, path, contract=lambda document: document["identity"].update(device=device)))


@pytest.mark.parametrize("name", ["0.1.0-tiny-cpu", "0.1.0-hash-sim"])
def test_other_cores_start_nothing(name: str) -> None:
    core = str(GOLDEN / f"{name}.core.safetensors")
    assert not is_for_a_gpu(core)
    assert initialise_early(core) is None


def test_what_is_no_core_starts_nothing(tmp_path: Path) -> None:
    assert not is_for_a_gpu(str(tmp_path / "missing"))
    assert not is_for_a_gpu(str(tmp_path))
    for content in (b"", b"short", b"\xff" * 100):
        (tmp_path / "file").write_bytes(content)
        assert not is_for_a_gpu(str(tmp_path / "file"))


def test_a_gpu_core_initialises_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_for("sm_90", tmp_path / "core")
    called: list[int] = []
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", SimpleNamespace(cuInit=called.append))
    thread = initialise_early(core)
    assert thread is not None
    thread.join(10)
    assert called == [0]


def test_a_machine_without_a_driver_says_nothing_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    thread = initialise_early(core_for("sm_120", tmp_path / "core"))
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()


def test_nothing_large_is_imported_before_it() -> None:
    large = "{'numpy', 'pydantic', 'zmq'}"
    script = f"import sys, flare.engine.early_driver; print(sorted({large} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]", result.stderr

"""The small core, captured once per run; skipped, never passed, where there is no GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from processes import run

from flare.device.cuda.driver import CudaDriver
from flare.errors import DeviceError


@pytest.fixture(scope="session")
def gpu() -> CudaDriver:
    """The driver of a machine with a GPU and torch for it."""
    try:
        driver = CudaDriver()
    except DeviceError as error:
        pytest.skip(str(error))
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return driver


@pytest.fixture(scope="session")
def small_core(gpu: CudaDriver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the small core and what torch's replay of its graphs computed."""
    directory = tmp_path_factory.mktemp("small")
    run("small_core.py", str(directory))
    return directory


@pytest.fixture(scope="session")
def captured(small_core: Path) -> dict[str, Any]:
    """What the capturing process found."""
    found: dict[str, Any] = json.loads((small_core / "expected.json").read_text())
    return found


@pytest.fixture(scope="session")
def replays(small_core: Path, captured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What two fresh processes found, at the recorded base and elsewhere; written to FLARE_GPU_REPORT."""
    found = {"recorded": json.loads(run("small_replay.py", str(small_core)))}
    found["relocated"] = json.loads(run("small_replay.py", str(small_core), "relocate"))
    if report := os.environ.get("FLARE_GPU_REPORT"):
        kept = ("machine", "load_spans", "ready_ms", "launch_us", "submit_us", "elapsed_us", "ledger")
        document = {
            name: {key: result[key] for key in kept} | {"inputs": len(result["completions"]) - 1}
            for name, result in found.items()
        }
        Path(report).write_text(json.dumps(document | {"graphs": captured["graphs"]}, indent=1) + "\n")
    return found

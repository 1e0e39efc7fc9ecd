"""What a process that serves a GPU core takes, and that the ledger says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import run

from flare.device.cuda.driver import CudaDriver

pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture(scope="module")
def core(gpu: CudaDriver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model prepared for this GPU."""
    directory = tmp_path_factory.mktemp("load")
    run("tiny_core.py", str(directory))
    return directory / "cuda.core"


def report(core: Path, **options: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("load_report.py", str(core), json.dumps(options)).splitlines()[-1])
    return found


def test_the_ledger_is_what_the_gpu_lost(core: Path) -> None:
    for options in ({}, {"cache_tokens": 4096, "snapshot_rows": 4}):
        found = report(core, **options)
        assert found["gpu_used_bytes"] == pytest.approx(found["ledger_bytes"], rel=0.02), found
        assert not found["torch"]
        assert found["growth"] == 0


def test_pages_are_as_many_as_asked_for(core: Path) -> None:
    few = report(core, cache_tokens=4096, snapshot_rows=4)
    assert (few["cache_tokens"], few["snapshot_rows"]) == (4096, 4)
    many = report(core)
    assert many["pages"] > 100 * few["pages"]
    assert many["ledger"]["pages"] > 100 * MIB


def test_weights_are_not_in_the_memory_of_the_process(core: Path) -> None:
    found = report(core)
    assert found["resident_bytes"] < 500 * MIB
    spans = found["load_spans"]
    assert spans["contents"][0] < spans["context"][0]  # reading begins before there is a context
    assert spans["total"][1] < 5000

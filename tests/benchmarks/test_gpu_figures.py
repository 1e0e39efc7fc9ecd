"""The figures of the GPU benchmarks, with the tiny core of the CPU and without a GPU."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import result_file
from prepared_cores import TINY, tiny_request
from replay import step_bytes
from serve import measure
from startup import read_and_verify

from flare.bench.recorder import Recorder
from flare.bench.result import read_result
from flare.bench.settings import BenchSettings
from flare.contract import DType, Region
from flare.corefile import CoreReader, read_contract
from flare.errors import CoreError
from flare.prepare.progress import Progress
from flare.prepare.session import PreparationSession
from flare_recipe_smollm.recipe import RECIPE

SMALL = BenchSettings(
    requests=2,
    prompt_tokens=(40, 100),
    concurrency=(1, 2),
    decode_prompt_tokens=20,
    output_tokens=40,
    prefix_tokens=60,
    append_tokens=11,
)


@pytest.fixture(scope="module")
def roomy_core(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with room for a checkpoint at every prompt's end."""
    path = tmp_path_factory.mktemp("roomy") / "roomy.core"
    request = tiny_request(DType.F32, replace(TINY, snapshot_rows=16))
    PreparationSession(RECIPE, request, Progress()).prepare(RECIPE.loader.open(tiny_checkpoint), path)
    return path


def test_scenarios_measure_an_engine(roomy_core: Path, tmp_path: Path) -> None:
    into = tmp_path / "found.json"
    scenarios = ["cold", "decode", "append", "extend", "repeat", "mixed"]
    asyncio.run(measure(roomy_core, into, "tiny", scenarios, SMALL))
    result = read_result(into)
    assert result.failures == 0, {name: s.errors for name, s in result.scenarios.items()}
    figures = {(name, f.case, f.measure): f for name, s in result.scenarios.items() for f in s.figures}
    assert figures["cold", "100 tokens", "prompt"].values == [100, 100]
    assert figures["cold", "100 tokens", "cached"].values == [0, 0]
    assert figures["extend", "with a tail", "prompt"].values == [71] * 6
    assert figures["extend", "with a tail", "cached"].values == [60] * 6
    assert figures["repeat", "again", "cached"].values == [60] * 4
    assert min(figures["decode", "2 streams", "total"].values) > 1
    assert figures["decode", "the server's last steps", "program"].median > 0
    assert figures["steps", "program", "2 streams p50"].median > 0
    assert ("mixed", "100 tokens beside 2 streams", "inter-token during, p99") in figures


def test_parts_that_run_again_add_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/somebody/replay.py", str(tmp_path / "a.core"), "--repeat", "3"])
    path = tmp_path / "results" / "engine.json"
    for value in (2.0, 3.0):
        recorder = Recorder()
        recorder.add("1 stream", "graph", value, "ms", "lower")
        result_file.add_recorded(path, "Engine", "replay", recorder, 1.0)
    recorder = Recorder()
    recorder.add("warm", "ready", 4.0, "s", "lower")
    result_file.add_recorded(path, "Engine", "start", recorder, 1.0)
    result = read_result(path)
    assert [figure.values for figure in result.scenarios["replay"].figures] == [[2.0, 3.0]]
    assert result.scenarios["replay"].seconds == 2.0
    assert set(result.settings["commands"]) == {"replay", "start"}
    assert result.settings["commands"]["replay"] == "replay.py a.core --repeat 3"
    assert result.machine["cores"] > 0


def test_reading_verifies(tiny_core: Path, tmp_path: Path) -> None:
    assert 0 < read_and_verify(tiny_core) < 10
    damaged = tmp_path / "damaged.core"
    data = bytearray(tiny_core.read_bytes())
    with CoreReader(tiny_core) as reader:
        name = next(b.tensor for b in read_contract(reader).buffers if b.region is Region.WEIGHTS)
        place = data.index(bytes(reader.load(name)))
    data[place] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(CoreError, match="damaged"):
        read_and_verify(damaged)


def test_a_step_reads_weights_and_pages(tiny_core: Path) -> None:
    with CoreReader(tiny_core) as reader:
        contract = read_contract(reader)
    weights = sum(b.nbytes for b in contract.buffers if b.region is Region.WEIGHTS)
    per_token = contract.page.nbytes / contract.page.page_tokens
    assert step_bytes(contract, 2, 100) == weights + 200 * per_token
    assert per_token > 0

"""A model prepared on a GPU, served by a process that has no torch."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from processes import run

from flare.contract import ProgramKind, Region
from flare.corefile import CoreReader, read_contract
from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.graph_spec import CopyNode, decode

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

# Nats between two implementations of a two-layer model in BF16.
NEAR = 0.1


@pytest.fixture(scope="module")
def prepared(gpu: CudaDriver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the tiny model's cores for GPU and CPU, and of what both drew."""
    directory = tmp_path_factory.mktemp("tiny")
    run("tiny_core.py", str(directory), seconds=800)
    return directory


@pytest.fixture(scope="module")
def driven(prepared: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((prepared / "driven.json").read_text())
    return found


@pytest.fixture(scope="module")
def served(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process came back with in which importing torch or triton fails."""
    barred = tmp_path_factory.mktemp("barred")
    for name in ("torch", "triton", "transformers"):
        (barred / f"{name}.py").write_text(f"raise ImportError('{name} has no place here')\n")
    path = os.pathsep.join([str(barred), os.environ.get("PYTHONPATH", "")])
    said = run("tiny_serve.py", str(prepared / "cuda.core"), path=path, seconds=800)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def test_the_core_says_what_it_is_for(prepared: Path) -> None:
    with CoreReader(prepared / "cuda.core") as reader:
        contract = read_contract(reader)
    assert contract.identity.device.startswith("sm_")
    assert contract.identity.operator_library is None
    assert {"cuda-driver", "cuda-toolkit", "triton", "torch"} <= set(contract.identity.versions)
    ledger = contract.provenance.memory_ledger
    assert {"weights", "pages", "graph_pool", "kernel_images", "context"} <= set(ledger)
    stored = [b for b in contract.buffers if b.region is Region.SCRATCH]
    assert all(buffer.tensor == buffer.name for buffer in stored)
    assert all(program.cost_us for program in contract.programs if program.tokens)


def test_a_process_without_torch_draws_the_same(driven: dict[str, Any], served: dict[str, Any]) -> None:
    assert served["torch absent"]
    assert served["driven"] == driven["cuda"]


@pytest.mark.parametrize("form", ["cuda", "traced", "modules"])
def test_programs_write_pages_and_rows_by_operators_alone(prepared: Path, form: str) -> None:
    with CoreReader(prepared / f"{form}.core") as reader:
        contract = read_contract(reader)
        specs = {p.name: decode(reader.load(p.payloads[0].tensor), p.name) for p in contract.programs}
    large = {b.name for b in contract.buffers if b.region in (Region.PAGES, Region.ROWS)}
    for program in contract.programs:
        if program.kind in (ProgramKind.PREFILL, ProgramKind.DECODE, ProgramKind.RESUME):
            copies = [node for node in specs[program.name].nodes if isinstance(node, CopyNode)]
            assert not any({n.source.address.buffer, n.destination.address.buffer} & large for n in copies)


@pytest.mark.parametrize("other", ["cpu", "traced", "modules"])
def test_results_are_near_those_of(driven: dict[str, Any], other: str) -> None:
    compared = 0
    for step, draws in driven["cuda"].items():
        reference = driven[other][step]
        assert len(draws) == len(reference)
        for (token, _, top), (expected, _, listed) in zip(draws, reference, strict=True):
            both = top.keys() & listed.keys()
            assert len(both) > 10
            assert max(abs(top[name] - listed[name]) for name in both) < NEAR, step
            compared += 1
            if token != expected:
                break  # what follows is another text
    assert compared > 20


def test_a_restored_request_goes_on_as_if_nothing_had_happened(driven: dict[str, Any]) -> None:
    drawn = driven["cuda"]
    assert [token for token, *_ in drawn["restored"]] == [token for token, *_ in drawn["undisturbed"]]
    for (_, value, _), (_, expected, _) in zip(drawn["restored"], drawn["undisturbed"], strict=True):
        assert math.isclose(value, expected, abs_tol=0.01)


def test_the_engine_draws_the_oracle(prepared: Path, served: dict[str, Any]) -> None:
    with CoreReader(prepared / "cuda.core") as reader:
        oracle = read_contract(reader).provenance.oracle
    assert oracle is not None
    assert served["oracle"]["tokens"] == list(oracle.tokens)
    assert served["again"]["tokens"] == list(oracle.tokens)
    assert served["again"]["cached"] > 0
    assert served["frames"] == 2
    for answer in served["many"]:
        assert (len(answer["tokens"]), answer["reason"]) == (40, "length")


def test_nothing_was_allocated_compiled_or_captured_while_serving(served: dict[str, Any]) -> None:
    assert served["stats"]["device_growth"] == 0


def test_the_core_verifies_itself(served: dict[str, Any]) -> None:
    outcomes = {check["name"]: check["outcome"] for check in served["verify"]["checks"]}
    assert set(outcomes.values()) == {"passed"}, served["verify"]

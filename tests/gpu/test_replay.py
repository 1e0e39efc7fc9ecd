"""A prepared core computes, in a process without torch, the bits that torch's replay computed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import run
from replay_steps import COUNT

from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.layout import DEFAULT_BASE

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Replayed:
    """What torch's replay found, and what processes without torch did by where the core was loaded."""

    expected: dict[str, Any]
    found: dict[str, dict[str, Any]]


def replayed_core(directory: Path, geometry: str, *options: str) -> Replayed:
    """A core prepared with `options`, loaded at its addresses and, if it is relocatable, at others."""
    run("replay_core.py", str(directory), geometry, *options)
    core = str(directory / "cuda.core")
    found = {"recorded": json.loads(run("replay_serve.py", core))}
    if "relocatable" in options:
        found["relocated"] = json.loads(run("replay_serve.py", core, "relocate"))
    return Replayed(json.loads((directory / "expected.json").read_text()), found)


@pytest.fixture(scope="module", params=["tiny", "smollm"])
def replayed(
    gpu: CudaDriver, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Replayed:
    return replayed_core(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module", params=["tiny", "smollm"])
def relocatable(
    gpu: CudaDriver, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Replayed:
    return replayed_core(tmp_path_factory.mktemp(request.param), request.param, "relocatable")


@pytest.fixture(scope="module")
def with_xqa(gpu: CudaDriver, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    pytest.importorskip("flashinfer")
    return replayed_core(tmp_path_factory.mktemp("xqa"), "smollm", "relocatable", "xqa")


def check_bits(replayed: Replayed, where: str) -> None:
    """Tokens and probabilities of every step, and all state at the end: pages, rows, hidden vectors."""
    expected, found = replayed.expected, replayed.found[where]
    assert found["completions"] == expected["completions"]
    assert found["state"] == expected["state"]
    assert found["queued"] == {name: expected[name] for name in ("completions", "state")}
    assert not found["torch"]
    assert found["growth"] == 0


def test_what_ran(replayed: Replayed) -> None:
    expected = replayed.expected
    assert set(expected["programs"]) == set(expected["graphs"])
    assert len(expected["completions"]) >= COUNT
    assert len(set(expected["completions"])) > COUNT // 2
    assert replayed.found["recorded"]["base"] == DEFAULT_BASE


def test_the_same_bits(replayed: Replayed) -> None:
    check_bits(replayed, "recorded")


@pytest.mark.parametrize("where", ["recorded", "relocated"])
def test_the_same_bits_of_a_core_that_can_be_relocated(relocatable: Replayed, where: str) -> None:
    check_bits(relocatable, where)


def test_where_it_ran(relocatable: Replayed) -> None:
    graphs = relocatable.expected["graphs"]
    assert {name: g["immovable"] for name, g in graphs.items() if not g["relocatable"]} == {}
    assert relocatable.found["recorded"]["base"] == DEFAULT_BASE
    assert relocatable.found["relocated"]["base"] != DEFAULT_BASE


@pytest.mark.parametrize("where", ["recorded", "relocated"])
def test_the_same_bits_with_a_librarys_attention(with_xqa: Replayed, where: str) -> None:
    decoding = {name: g["xqa"] for name, g in with_xqa.expected["graphs"].items() if "decode" in name}
    assert decoding
    assert set(decoding.values()) == {30}  # one a layer
    check_bits(with_xqa, where)

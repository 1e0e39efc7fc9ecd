"""What an operator library has for GPUs is found by the names of its modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from flare.contract import OperatorLibrary
from flare.prepare.kernel_library import KernelLibrary, load_kernels

TUNING = """
from contextlib import contextmanager
from types import SimpleNamespace

@contextmanager
def tuning(cache):
    yield SimpleNamespace(choices=[], measured=0, cache=cache)
"""
FUSION = "def fuse(graph):\n    return sum(node.op == 'placeholder' for node in graph.nodes)\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KernelLibrary]:
    """Loads a package of the given files as an operator library."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(**files: str) -> KernelLibrary:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kernels_of_tests"]:
            monkeypatch.delitem(sys.modules, name)
        for name, text in {"__init__": "", **files}.items():
            path = tmp_path / "kernels_of_tests" / f"{name.replace('_dot_', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
        return load_kernels(
            OperatorLibrary(module="kernels_of_tests", distribution="d", minimum="1", below="2")
        )

    return make


def test_a_library_for_the_cpu(library: Callable[..., KernelLibrary], tmp_path: Path) -> None:
    kernels = library()
    assert kernels.fuse is None
    with kernels.tuning(tmp_path) as report:
        assert report is None


def test_a_library_that_chooses_and_fuses(library: Callable[..., KernelLibrary], tmp_path: Path) -> None:
    kernels = library(cuda_dot___init__="", cuda_dot_tuning=TUNING, cuda_dot_fusion=FUSION)
    graph = torch.fx.Graph()
    graph.placeholder("x")
    assert kernels.fuse is not None
    assert kernels.fuse(graph) == 1
    with kernels.tuning(tmp_path) as report:
        assert report is not None
        assert report.cache == tmp_path  # type: ignore[attr-defined]


def test_kernels_alone(library: Callable[..., KernelLibrary], tmp_path: Path) -> None:
    kernels = library(cuda_dot___init__="")
    assert kernels.fuse is None
    with kernels.tuning(tmp_path) as report:
        assert report is None


def test_the_version_follows_the_sources(library: Callable[..., KernelLibrary]) -> None:
    first = library(cuda_dot___init__="")
    assert library(cuda_dot___init__="").version == first.version
    assert library(cuda_dot___init__="x = 1").version != first.version
    assert library(cuda_dot___init__="", cuda_dot_more="").version != first.version

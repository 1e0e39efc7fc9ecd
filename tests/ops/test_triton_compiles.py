"""Every kernel compiles for every supported architecture, on a machine without a GPU.

The operators' own launches are followed up to the compiler: each test case of the GPU tests is called with
operands on the CPU, and launching compiles instead.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime import driver  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

import flare_components.ops.cuda as cuda  # noqa: E402
from flare_components.ops.cuda import (  # noqa: E402
    attention,
    attention_hopper,
    attention_tiles,
    attention_xqa,
    fused,
    launch,
    linear,
    sampling,
)
from flare_components.ops.cuda.tuning import Candidate  # noqa: E402

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from op_cases import CASES  # noqa: E402

MODULES = [
    importlib.import_module(f"{cuda.__name__}.{module.name}")
    for module in pkgutil.iter_modules(cuda.__path__)
]
# Called by other kernels, never launched.
HELPERS = {
    "attend_span",
    "attend_tokens",
    "await_inputs",
    "conclude",
    "descend",
    "edit",
    "find_tile",
    "inverse_length",
    "inverse_lengths",
    "join",
    "key_of",
    "meet",
    "reset",
    "row_of_lane",
    "scaled",
    "uniform",
    "value_of",
    "weight_rows",
}
HELPERS |= {"add", "advance", "consume", "fetch", "produce", "softmax"}
# Of compute capability 9.0 alone.
HOPPER = {"attend_tiles_hopper"}


class NoDevice:
    """A driver that knows its target and nothing else."""

    def __init__(self, architecture: int) -> None:
        self.architecture = architecture

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return self.architecture

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[tuple[Any, ...], Any]:
    """Launches compile; what was compiled, by kernel and constants."""
    compiled: dict[tuple[Any, ...], Any] = {}
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        key = (self.__name__, *sorted((k, v) for k, v in options.items()), *map(_kind, args))
        if key not in compiled:
            compiled[key] = run(self, *args, grid=grid, warmup=True, **options)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(JITFunction, "run", compile_only)
    for module in (attention, attention_tiles, linear, sampling):
        monkeypatch.setattr(module, "processors", lambda _: 132)
    return compiled


def _kind(argument: Any) -> Any:
    return str(argument.dtype) if isinstance(argument, torch.Tensor) else type(argument).__name__


def kernels() -> set[str]:
    found = (value for module in MODULES for value in vars(module).values())
    return {value.__name__ for value in found if isinstance(value, JITFunction)}


def operator(name: str) -> Any:
    found = {function for module in MODULES if (function := vars(module).get(name)) and callable(function)}
    functions = [f for f in found if not isinstance(f, JITFunction)]
    assert len(functions) == 1, name
    return functions[0]


# A kernel's types and shapes: enough to reach every kernel and every branch that constants decide.
CHOSEN = """attention decode wide, attention prefill long, attention append, sample one, sample grammar, norm,
add norm, gate, limited gate, rotary, kv write, embedding, scatter, slot mapping, gather i32, copy blocks,
set table, extend table, decode inputs, commit, advance, completion, start, count outputs""".replace(
    "\n", " "
).split(", ")
# Fused products: every candidate of one row and of more.
FUSED = ("linear_add", "norm_linear", "norm_gate", "norm_attention")
CHOSEN += [
    "linear_add 1x100x1030",
    "linear_add 8x33x2056",
    "norm_linear 8x33x2056",
    "norm_gate 1x64x4096",
    "norm_attention wide",
    "norm_attention four",
]
# Supported architectures and the shared memory of a program (CUDA C++ Programming Guide, compute
# capabilities).
SHARED = {90: 227 << 10, 100: 227 << 10, 103: 227 << 10, 120: 99 << 10, 121: 99 << 10}


def nth(number: int, found: list[Candidate]) -> Candidate:
    kernels = [candidate for candidate in found if candidate.name != "separate"]
    return kernels[min(number, len(kernels) - 1)]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", SHARED)
def test_compiles(architecture: int, launches: dict[tuple[Any, ...], Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(driver, "_active", NoDevice(architecture))
    for module in (attention, attention_tiles):
        monkeypatch.setattr(module, "roomy", lambda _: SHARED[architecture] > 160 << 10)
    monkeypatch.setattr(launch, "_overlaps", lambda _: True)
    monkeypatch.setattr(attention_hopper, "is_hopper", lambda _: architecture == 90)
    names = {f"{name}{kind}" for name in CHOSEN for kind in ("", " bf16")} | {"attention prefill long f32"}
    for case in (case for case in CASES if case.name in names):
        operator(case.op)(*case.make(torch.Generator().manual_seed(0)))
    for case in (case for case in CASES if case.op in FUSED and case.name in names):
        for number in range(8):
            monkeypatch.setattr(fused, "choose", lambda *given, n=number: nth(n, given[2]()))
            operator(case.op)(*case.make(torch.Generator().manual_seed(0)))
    for rows in (1, 4):
        x, weight = torch.empty(rows, 512, dtype=torch.bfloat16), torch.empty(64, 512, dtype=torch.bfloat16)
        for candidate in linear.candidates(x, weight)[1::3]:
            candidate.call(x, weight, None)
    for case in (case for case in CASES if case.name in ("attention one bf16", "attention decode bf16")):
        attention_xqa.describe(case.make(torch.Generator().manual_seed(0))[:6], None)
    expected = kernels() - HELPERS
    assert {key[0] for key in launches} == (expected if architecture == 90 else expected - HOPPER)
    for key, kernel in launches.items():
        assert f".target sm_{architecture}" in kernel.asm["ptx"], key
        assert kernel.asm["cubin"], key
        assert kernel.metadata.shared <= SHARED[architecture], key

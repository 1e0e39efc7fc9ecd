"""Two captures by a GPU target, over a fake driver and torch's CPU: what is exported, and what is refused."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from flare.contract import BufferSpec, BufferView, DType, OperatorLibrary, ProgramKind, Region
from flare.device.cuda.arena import Arena
from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.context import Context
from flare.device.cuda.graph_spec import VERSION, GraphSpec, KernelNode, Parameter, Pointer, decode
from flare.device.cuda.layout import DEFAULT_BASE
from flare.device.cuda.modules import ModuleRegistry
from flare.prepare import cuda_capture, cuda_hidden, cuda_moved, cuda_target, cuda_tensors
from flare.prepare.cuda_moved import DISTANCE
from flare.prepare.cuda_programs import CudaProgram
from flare.prepare.definition import ProgramDefinition, ProgramSet
from flare.prepare.diagnostics import Diagnostics, Form
from flare.prepare.forward import Forward
from flare.prepare.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1] / "device"))
from cuda_fake import FakeDriver
from kernel_image import kernel_image

LENGTH = 64
WORKSPACE = 2 << 20


class Accumulate(nn.Module):
    """Adds its weight to its state, in which it may keep a word."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.weight = nn.Parameter(_meta(), requires_grad=False)
        self.register_buffer("state", _meta())

    def forward(self) -> None:
        accumulate(self.machine, self.weight, self.state)


def accumulate(machine: Machine, weight: torch.Tensor, state: torch.Tensor) -> None:
    state.add_(weight)
    state[5] = machine.kept_in_state(machine.arena)
    machine.workspace()[7] = machine.kept_in_scratch(machine.arena)


def _meta() -> torch.Tensor:
    return torch.empty(LENGTH, dtype=torch.int64, device="meta")


class Machine:
    """Torch's GPU on the CPU: every call of torch.cuda that the target makes. What programs and a library
    leave in their memory, and pass as a parameter besides an address, is told per arena."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = FakeDriver()
        self.images = ModuleRegistry()
        self.image = self.images.add(kernel_image(["add_rows"], b"\1"))
        self.arenas: list[Arena] = []
        self.searched: list[bool] = []
        self.operands: list[tuple[Arena, str]] = []
        self.kept_in_state = self.kept_in_scratch = self.parameter = lambda arena: 0
        for name, stand_in in {
            "synchronize": lambda: None,
            "current_device": lambda: 0,
            "Stream": lambda: self,
            "stream": lambda stream: nullcontext(),
            "use_mem_pool": lambda pool: nullcontext(),
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
        monkeypatch.setattr(torch, "device", lambda *_: nullcontext())
        monkeypatch.setattr(cuda_capture, "TorchPool", self.pool)
        graph = SimpleNamespace(raw_cuda_graph=lambda: 1)
        monkeypatch.setattr(cuda_capture, "capture", lambda run, pool, stream: graph)
        monkeypatch.setattr(cuda_capture, "OperatorWatch", lambda *_: nullcontext())
        monkeypatch.setattr(cuda_capture, "export_graph", self.described)
        monkeypatch.setattr(cuda_tensors, "buffer_tensor", self.operand)
        for module in (cuda_target, cuda_hidden):
            monkeypatch.setattr(module, "buffer_tensor", self.tensor)

    @property
    def arena(self) -> Arena:
        """Where programs run now."""
        return self.arenas[-1]

    def synchronize(self) -> None:
        """This machine is a stream, too."""

    def pool(self, arena: Arena, region: Region, name: str) -> Any:
        if arena not in self.arenas:
            self.arenas.append(arena)
        return _Pool(arena, name)

    def operand(self, arena: Arena, name: str) -> torch.Tensor:
        self.operands.append((arena, name))
        return self.tensor(arena, name)

    def tensor(self, arena: Arena, name: str) -> torch.Tensor:
        span = arena.book.span(name)
        return torch.frombuffer(self.driver.window(span.start, arena.backed(name)), dtype=torch.uint8)

    def workspace(self) -> torch.Tensor:
        """i64 of scratch memory, made when it is first used."""
        pool = next(p for p in cuda_capture._POOLS[::-1] if p.arena is self.arena and p.name == "scratch")
        if not pool.buffers:
            self.arena.allocate("scratch/0", Region.SCRATCH, WORKSPACE)
            pool.buffers.append("scratch/0")
        return self.tensor(self.arena, "scratch/0").view(torch.int64)

    def described(
        self, driver: Any, context: Any, graph: int, arena: Arena, images: Any, *, search_variables: bool
    ) -> GraphSpec:
        assert arena is self.arena
        self.searched.append(search_variables)
        address = self.arena.book.span("state").start
        parameters = (
            Parameter(address.to_bytes(8, "little"), (Pointer(0, "state", 0),)),
            Parameter(self.parameter(self.arena).to_bytes(8, "little")),
        )
        node = KernelNode(self.image, "add_rows", (1, 1, 1), (32, 1, 1), 0, parameters)
        return GraphSpec(VERSION, "sm_90", 13000, self.arena.layout, (node,), ())

    def export(self, *, relocatable: bool = True) -> tuple[Any, GraphSpec]:
        """What the target made of one program."""
        target: Any = object.__new__(cuda_target.CudaTarget)
        target._driver, target._images = self.driver, self.images
        target._context = Context(self.driver)
        target._diagnostics = Diagnostics(form=Form.MODULES, relocatable=relocatable)
        made = target.export(_programs(self), Progress())
        return made, decode(made.payloads["program/p"], "p")


class _Pool:
    error = None
    pool = None

    def __init__(self, arena: Arena, name: str) -> None:
        self.arena, self.name = arena, name
        self.buffers: list[str] = []


def _programs(machine: Machine) -> ProgramSet:
    homes = {"weight": Region.WEIGHTS, "state": Region.ROWS}
    return ProgramSet(
        buffers=tuple(
            BufferSpec(name=name, region=region, dtype=DType.I64, shape=(LENGTH,), offset=0)
            for name, region in homes.items()
        ),
        programs=(
            ProgramDefinition(
                name="p",
                kind=ProgramKind.DECODE,
                lanes=1,
                tokens=1,
                module=Accumulate(machine),
                views={name: BufferView(buffer=name, dtype=DType.I64, shape=(LENGTH,)) for name in homes},
                bindings=(),
            ),
        ),
        operator_library=OperatorLibrary(distribution="flare-core", module="flare", minimum="0", below="9"),
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch)
    yield made
    assert made.driver.mapped == {}


def inside(arena: Arena) -> int:
    return arena.layout.start(Region.ROWS) + 8


def number(arena: Arena) -> int:
    return DEFAULT_BASE + 4096


def traced(definition: ProgramDefinition, machine: Machine) -> CudaProgram:
    """A program as a call with its tensors."""

    def run(weight: torch.Tensor, state: torch.Tensor) -> None:
        accumulate(machine, weight, state)

    views = definition.views["weight"], definition.views["state"]
    return CudaProgram(definition, Forward("p", cast(Any, run), views))


@pytest.mark.parametrize("form", ["modules", "traced"])
def test_a_program_is_captured_twice_and_can_be_moved(
    machine: Machine, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "traced":
        monkeypatch.setattr(
            cuda_target, "build_programs", lambda built, *_: (traced(built.programs[0], machine),)
        )
    made, spec = machine.export()
    first, second = machine.arenas
    assert set(machine.operands) == {(a, name) for a in (first, second) for name in ("weight", "state")}
    assert machine.searched == [True, True]
    assert second.layout.base - first.layout.base == DISTANCE
    assert spec.relocatable
    assert spec.layout.base == DEFAULT_BASE
    assert [buffer.name for buffer in made.buffers] == ["weight", "state", "scratch/0"]
    assert len(made.documents["scratch/0"]) == WORKSPACE


def test_without_the_option_there_is_one_capture_and_no_search(machine: Machine) -> None:
    machine.kept_in_state = machine.kept_in_scratch = machine.parameter = inside
    made, spec = machine.export(relocatable=False)
    assert len(machine.arenas) == 1
    assert machine.searched == [False]
    assert (spec.relocatable, spec.immovable) == (False, "")
    assert [buffer.name for buffer in made.buffers] == ["weight", "state", "scratch/0"]


@pytest.mark.parametrize("kept", [inside, number])
def test_words_in_state(machine: Machine, kept: Any) -> None:
    machine.kept_in_state = kept
    if kept is number:
        assert machine.export()[1].relocatable
    else:
        with pytest.raises(GraphExportError, match="byte 40 of buffer state holds an address"):
            machine.export()


@pytest.mark.parametrize("kept", [inside, number])
def test_words_in_scratch_memory_keep_it_in_its_place(
    machine: Machine, kept: Any, caplog: pytest.LogCaptureFixture
) -> None:
    machine.kept_in_scratch = kept
    with caplog.at_level(logging.WARNING):
        _, spec = machine.export()
    assert not spec.relocatable
    word = kept(machine.arenas[0])
    assert spec.immovable == f"byte 56 of buffer scratch/0 holds {word:#x}, an address of the arena"
    assert spec.immovable in caplog.text


def test_parameters_in_another_form_keep_a_program_in_its_place(machine: Machine) -> None:
    machine.parameter = lambda arena: inside(arena) >> 4
    assert "parameter 1, byte 0, holds an address that cannot" in machine.export()[1].immovable


def test_a_capture_that_finds_what_an_earlier_one_left(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def nothing(*_: Any) -> Iterator[None]:
        raise GraphExportError("node 0: memory outside all named buffers")
        yield

    monkeypatch.setattr(cuda_moved, "moved", nothing)
    assert machine.export()[1].immovable == "node 0: memory outside all named buffers"

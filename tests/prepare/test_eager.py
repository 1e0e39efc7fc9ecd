"""Programs run from Python agree with the loaded core, and a program that does not is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from prepared_cores import TINY, tiny_request

from flare.contract import BufferView, DType, ProgramKind
from flare.corefile import CoreReader, read_contract
from flare.device.cpu import CpuDevice
from flare.device.cpu_memory import CpuMemory
from flare.errors import DeviceError
from flare.prepare import ProgramSet
from flare.prepare.cpu_target import CpuTarget
from flare.prepare.eager import compare_programs
from flare.prepare.forward import Forward, build_forward
from flare.prepare.inductor import ForwardCompiler, region_module
from flare.prepare.progress import Progress
from flare.prepare.regions import replace_regions
from flare.prepare.session import PreparationSession
from flare.prepare.target import ExportedPrograms
from flare_recipe_smollm.recipe import RECIPE

HOST = torch.device("cpu")
PROMPT = [5, 9, 20, 31, 7, 8, 2]


class KeepingTarget(CpuTarget):
    """Keeps the programs that it exported."""

    programs: ProgramSet

    def export(self, programs: ProgramSet, progress: Progress) -> ExportedPrograms:
        self.programs = programs
        return super().export(programs, progress)


class CoreMemory:
    """The device's memory, and of weights that it keeps packed only, the plain ones from the core."""

    def __init__(self, device: CpuDevice, reader: CoreReader) -> None:
        self._memory = device._memory
        names = [b for b in device.contract.buffers if b.tensor is not None]
        self._plain = CpuMemory(names, reader)

    def view(self, view: BufferView) -> torch.Tensor:
        held = view.buffer in self._memory._blocks
        return (self._memory if held else self._plain).view(view)


Prepared = tuple[CpuDevice, ProgramSet, CoreMemory]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    directory = tmp_path_factory.mktemp("eager")
    checkpoint = RECIPE.oracle.tiny_checkpoint(directory / "checkpoint")
    target = KeepingTarget()
    session = PreparationSession(RECIPE, tiny_request(DType.F32, TINY), Progress(), target)
    session.prepare(RECIPE.loader.open(checkpoint), directory / "core")
    with CoreReader(directory / "core") as reader:
        device = CpuDevice(read_contract(reader), reader)
        yield device, target.programs, CoreMemory(device, reader)
        device.close()


def test_every_program_that_draws_is_compared(prepared: Prepared) -> None:
    device, programs, memory = prepared
    before = {name: tensor.device for p in programs.programs for name, tensor in p.module.named_buffers()}
    found = list(compare_programs(device, programs.programs, memory, HOST, PROMPT))
    kinds = (ProgramKind.START, ProgramKind.RESUME, ProgramKind.PREFILL, ProgramKind.DECODE)
    assert [f.program for f in found] == [p.name for p in device.contract.programs if p.kind in kinds]
    assert all(f.found.largest < f.bound and not f.found.moved for f in found), found
    after = {name: tensor.device for p in programs.programs for name, tensor in p.module.named_buffers()}
    assert before == after


def test_a_program_that_computes_something_else_is_named(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, programs, memory = prepared
    other = next(p for p in programs.programs if p.name == "decode.2")
    norm = type(other.module.served.model.norm)
    usual = norm.forward
    running: list[bool] = []
    monkeypatch.setattr(norm, "forward", lambda self, x: usual(self, x) * (1.5 if running else 1))
    forward = type(other.module).forward

    def faulty(self: torch.nn.Module) -> object:
        if self is not other.module:
            return forward(self)
        running.append(True)
        try:
            return forward(self)
        finally:
            running.clear()

    monkeypatch.setattr(type(other.module), "forward", faulty)
    with pytest.raises(DeviceError, match=r"program decode\.2: .* nats, more than rounding explains"):
        list(compare_programs(device, programs.programs, memory, HOST, PROMPT))


class AsGraph(torch.nn.Module):
    """Runs the graph of a program in the place of its module."""

    def __init__(self, forward: Forward, memory: CoreMemory) -> None:
        super().__init__()
        self.graph = forward.module
        self.tensors = [memory.view(view) for view in forward.views]

    def forward(self) -> None:
        self.graph(*self.tensors)


@pytest.mark.parametrize("decomposed", [False, True])
def test_graphs_of_programs_draw_what_the_programs_draw(prepared: Prepared, decomposed: bool) -> None:
    device, programs, memory = prepared
    compiler = ForwardCompiler(HOST, library="test")
    graphs = []
    for program in programs.programs:
        forward = compiler.trace(program) if decomposed else build_forward(program, HOST)
        if decomposed:
            assert replace_regions(forward.module, region_module) == (program.tokens > 0)
        graphs.append(replace(program, module=AsGraph(forward, memory), views={}))
    for found in compare_programs(device, graphs, memory, HOST, PROMPT):
        assert found.found.largest < found.bound, found
        assert not found.found.moved

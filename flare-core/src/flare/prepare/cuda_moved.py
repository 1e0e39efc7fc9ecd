"""Programs moved to other memory, so that a second capture shows which of their words are addresses.

The second arena has the buffers of the first, in the same memory seen at other addresses: it costs neither
memory nor an upload. Tensors keep their identity and alignment, so that nothing is compiled or tuned again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager

import msgspec
import torch

from flare.contract import BufferSpec, Region
from flare.device.cuda.arena import Arena
from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.driver import Driver
from flare.device.cuda.graph_compare import confirm_relocation
from flare.device.cuda.graph_spec import GraphSpec
from flare.prepare.cuda_capture import CaptureRig
from flare.prepare.cuda_hidden import address_in_scratch, check_state, scan, zero_buffers
from flare.prepare.cuda_programs import CudaProgram, as_written
from flare.prepare.cuda_tensors import ViewTensors
from flare.prepare.definition import ProgramDefinition
from flare.prepare.progress import Progress

logger = logging.getLogger("flare.prepare")

DISTANCE = 3 << 40
"""Bytes between the two bases: a multiple of every alignment that a kernel may have been specialised for."""


def captured_elsewhere(
    rig: CaptureRig,
    programs: tuple[CudaProgram, ...],
    buffers: tuple[BufferSpec, ...],
    graphs: Mapping[str, GraphSpec],
    progress: Progress,
) -> dict[str, GraphSpec]:
    """`graphs` of `rig`, relocatable where a capture at other addresses shows how.

    `buffers` are those of the programs. Modules that are captured as written have their tensors in `rig`'s
    arena, before and after. Raises GraphExportError for an address in the state that programs leave, and
    DeviceError as `mirrored`.
    """
    state, home = zero_buffers(buffers), rig.arena.layout
    before = scan(rig.arena, [*state, *rig.scratch.buffers], home)
    torch._C._cuda_clearCublasWorkspaces()
    with mirrored(rig.driver, rig.arena, buffers) as arena:
        other = CaptureRig(rig.driver, rig.context, arena, rig.images, search_variables=True)
        try:
            with moved(as_written(programs), other.tensors):
                again = other.capture(programs, progress, "Capture elsewhere")
        except GraphExportError as error:
            return confirmed(graphs, {}, str(error))
        after = scan(arena, [*state, *other.scratch.buffers], arena.layout)
        stale = scan(arena, other.scratch.buffers, home)
    check_state(before, after, state, DISTANCE)
    return confirmed(graphs, again, address_in_scratch(before, after, stale, DISTANCE))


@contextmanager
def mirrored(driver: Driver, arena: Arena, buffers: Iterable[BufferSpec]) -> Iterator[Arena]:
    """An arena `DISTANCE` higher whose `buffers`, and space for temporaries, are the memory of `arena`'s.

    Scratch is its own. Raises DeviceError when the addresses are taken.
    """
    with closing(Arena(driver, arena.layout.moved(arena.layout.base + DISTANCE))) as other:
        other.share(arena, [region for region in Region if region is not Region.SCRATCH])
        for buffer in buffers:
            other.place(buffer.name, buffer.region, buffer.offset, buffer.nbytes, backed=0)
        try:
            yield other
        finally:
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()  # they lie in the arena


@contextmanager
def moved(programs: Iterable[ProgramDefinition], tensors: ViewTensors) -> Iterator[None]:
    """Let every registered tensor of the programs' modules have the memory of `tensors` for a while. The
    objects stay: what was compiled for them is used again."""
    before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    try:
        for program in programs:
            for name, view in program.views.items():
                path, _, leaf = name.rpartition(".")
                tensor: torch.Tensor = getattr(program.module.get_submodule(path), leaf)
                if id(tensor) not in before:
                    before[id(tensor)] = tensor, tensor.data
                    tensor.data = tensors.view(view)
        yield
    finally:
        for tensor, data in before.values():
            tensor.data = data


def confirmed(
    graphs: Mapping[str, GraphSpec], again: Mapping[str, GraphSpec], hidden: str
) -> dict[str, GraphSpec]:
    """`graphs`, relocatable where the second capture `again` shows which words are addresses and nothing is
    `hidden`; otherwise with the reason why they must stay where they are."""
    result = {}
    for name, spec in graphs.items():
        try:
            if hidden:
                raise GraphExportError(hidden)
            result[name] = confirm_relocation(spec, again[name])
        except GraphExportError as error:
            logger.warning("program %s must stay at its addresses: %s", name, error)
            result[name] = msgspec.structs.replace(spec, immovable=str(error))
    return result

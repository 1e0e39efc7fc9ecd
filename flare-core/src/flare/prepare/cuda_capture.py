"""Capture of a core's programs: an arena, pools of torch inside it, one stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from flare.contract import BufferSpec, DType, Initial, ProgramKind, Region
from flare.device.cuda.arena import Arena
from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.context import Context
from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.graph_export import export_graph
from flare.device.cuda.graph_spec import GraphSpec
from flare.device.cuda.modules import ModuleRegistry
from flare.device.cuda.torch_pool import TorchPool, capture
from flare.device.sizing import BLOCK_REGIONS
from flare.prepare.cuda_programs import CudaProgram
from flare.prepare.cuda_tensors import ArenaTensors, upload_idle
from flare.prepare.kernel_library import Report
from flare.prepare.operator_watch import OperatorWatch
from flare.prepare.progress import Progress

_CAPTURED_BYTES = 1 << 30
"""Memory behind pages, and behind rows, while programs are captured: they run without requests."""

# Torch calls these back, and holds only their addresses, until the process ends.
_POOLS: list[TorchPool] = []


class CaptureRig:
    """Arena, pools and stream of one capture of all programs. `search_variables`: see `export_graph`."""

    def __init__(
        self,
        driver: CudaDriver,
        context: Context,
        arena: Arena,
        images: ModuleRegistry,
        *,
        search_variables: bool = False,
    ) -> None:
        self.driver, self.context, self.arena, self.images = driver, context, arena, images
        self._search_variables = search_variables
        self.scratch = TorchPool(arena, Region.SCRATCH, "scratch")
        self.temporaries = TorchPool(arena, Region.GRAPH_POOL, "graph_pool")
        _POOLS.extend((self.scratch, self.temporaries))
        self._stream = torch.cuda.Stream()
        self.tensors = ArenaTensors(arena)

    def place(self, buffers: tuple[BufferSpec, ...]) -> None:
        """Memory for every buffer, zero: what states begin with. Pages and rows get a part of theirs."""
        for buffer in buffers:
            backed = min(buffer.nbytes, _CAPTURED_BYTES) if buffer.region in BLOCK_REGIONS else buffer.nbytes
            start = self.arena.place(buffer.name, buffer.region, buffer.offset, buffer.nbytes, backed=backed)
            if backed:
                self.driver.call("cuMemsetD8Async", start, 0, backed, 0)
        torch.cuda.synchronize()

    def tune(
        self,
        programs: tuple[CudaProgram, ...],
        tuning: AbstractContextManager[Report | None],
        progress: Progress,
    ) -> Report | None:
        """Run everything once outside the arena's pools: building and timing kernels leaves memory behind.

        Raises DeviceError naming an operator without a kernel, its operands and the architecture.
        """
        with (
            progress.phase("Tune operators", total_steps=len(programs)) as bar,
            torch.cuda.stream(torch.cuda.Stream()),
            torch.no_grad(),
            torch.device("cuda"),
            tuning as report,
        ):
            for program in programs:
                upload_idle(program.definition, self.tensors)
                with OperatorWatch(program.definition.name, self.context.architecture):
                    self._call(program)()
                torch.cuda.synchronize()
                bar.advance(1)
        torch._C._cuda_clearCublasWorkspaces()
        if report is not None:
            _show(report, progress)
        return report

    def capture(
        self, programs: tuple[CudaProgram, ...], progress: Progress, title: str = "Capture programs"
    ) -> dict[str, GraphSpec]:
        """The graph of every program, by name; nothing is allocated afterwards."""
        try:
            with torch.no_grad(), torch.device("cuda"):
                self._warm_up(_smallest(programs))
                return self._graphs(programs, progress, title)
        except torch.cuda.OutOfMemoryError as error:
            raise self.scratch.error or self.temporaries.error or error from error

    def _call(self, program: CudaProgram) -> Callable[[], object]:
        forward = program.forward
        if forward is None:
            module: Callable[[], object] = program.definition.module
            return module
        tensors = [self.tensors.view(view) for view in forward.views]
        return lambda: forward.module(*tensors)

    def _warm_up(self, programs: tuple[CudaProgram, ...]) -> None:
        """What is made once for a stream, library workspaces above all, lands in the scratch pool."""
        with torch.cuda.stream(self._stream), torch.cuda.use_mem_pool(self.scratch.pool):
            for program in programs:
                upload_idle(program.definition, self.tensors)
                self._call(program)()
        self._stream.synchronize()

    def _graphs(
        self, programs: tuple[CudaProgram, ...], progress: Progress, title: str
    ) -> dict[str, GraphSpec]:
        with progress.phase(title, total_steps=len(programs)) as bar:
            captured = {}
            for program in programs:
                name = program.definition.name
                captured[name] = capture(self._call(program), self.temporaries, self._stream)
                bar.advance(1)
            self.arena.freeze()
            torch.cuda.synchronize()
        return {name: self._described(name, graph) for name, graph in captured.items()}

    def _described(self, name: str, graph: torch.cuda.CUDAGraph) -> GraphSpec:
        try:
            return export_graph(
                self.driver,
                self.context,
                graph.raw_cuda_graph(),
                self.arena,
                self.images,
                search_variables=self._search_variables,
            )
        except GraphExportError as error:
            raise GraphExportError(f"program {name}: {error}", field=error.field) from error

    def pool_buffers(self) -> tuple[BufferSpec, ...]:
        """The pools' segments as buffers: scratch is stored, temporaries have no contents."""
        pools = ((self.scratch, Region.SCRATCH), (self.temporaries, Region.GRAPH_POOL))
        return tuple(
            self._segment(name, region, stored=pool is self.scratch)
            for pool, region in pools
            for name in pool.buffers
        )

    def _segment(self, name: str, region: Region, *, stored: bool) -> BufferSpec:
        span = self.arena.book.span(name)
        return BufferSpec(
            name=name,
            region=region,
            dtype=DType.U8,
            shape=(span.nbytes,),
            offset=span.start - self.arena.layout.start(region),
            initial=Initial.BYTES if stored else Initial.UNDEFINED,
            tensor=name if stored else None,
            role="library workspace" if stored else "temporaries of all programs",
        )


def _show(report: Report, progress: Progress) -> None:
    for choice in report.choices:
        times = sorted(choice.microseconds.items(), key=lambda item: item[1])
        others = ", ".join(f"{name} {time:.1f}" for name, time in times if name != choice.name)
        chosen = f"{choice.name} {choice.microseconds[choice.name]:.1f} us"
        progress.note(f"  {choice.operator} {choice.shape}: {chosen} ({others})")
    for line in report.notes:
        progress.note(f"  {line}")
    if not report.choices:
        return
    known = len(report.choices) - report.measured
    progress.note(f"  {len(report.choices)} choices of kernels, {known} of them from earlier preparations")


def _rows(program: CudaProgram) -> tuple[int, int]:
    return program.definition.tokens, program.definition.lanes


def _smallest(programs: tuple[CudaProgram, ...]) -> tuple[CudaProgram, ...]:
    """Of every kind, the program with the fewest rows: scratch memory is stored in the core."""
    found: dict[ProgramKind, CudaProgram] = {}
    for program in programs:
        best = found.get(program.definition.kind)
        if best is None or _rows(program) < _rows(best):
            found[program.definition.kind] = program
    return tuple(found.values())

"""A GPU as a target: programs run once to make their kernels, then are captured into graphs.

Weights are not read here: what a program does depends on no contents. The arena is gone when the export is
made, so that the same process can load the core at the same addresses.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from flare.contract import BufferSpec, DType, Initial, ProgramKind, Region
from flare.device.cuda.arena import Arena
from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.context import Context
from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.graph_export import export_graph
from flare.device.cuda.graph_spec import PAYLOAD_FORMAT, GraphSpec, encode, image_tensor
from flare.device.cuda.layout import plan_layout
from flare.device.cuda.modules import ModuleRegistry
from flare.device.cuda.torch_pool import TorchPool, buffer_tensor, capture
from flare.device.sizing import BLOCK_REGIONS
from flare.prepare.cuda_tensors import ArenaTensors, materialised, upload_idle
from flare.prepare.definition import ProgramDefinition, ProgramSet
from flare.prepare.operator_watch import OperatorWatch
from flare.prepare.progress import Progress
from flare.prepare.target import ExportedPrograms, payload_name

_CAPTURED_BYTES = 1 << 30
"""Memory behind pages, and behind rows, while programs are captured: they run without requests."""

Tuning = Callable[[], AbstractContextManager[object]]

# Torch calls these back, and holds only their addresses, until the process ends.
_POOLS: list[TorchPool] = []


@cache
def _registry() -> ModuleRegistry:
    """The kernel images of this process. Begins to watch; nothing of torch has touched the GPU before."""
    registry = ModuleRegistry()
    registry.watch()
    return registry


class CudaTarget:
    """See `PreparationTarget`: the GPU that torch calls device 0.

    Make it before anything else uses that GPU. Raises DeviceError without driver, GPU or CUPTI.
    """

    weight_copies = 1.0
    prefill_chunk = 4096
    instruction_set: str | None = None

    def __init__(self) -> None:
        self._driver = CudaDriver()
        self._images = _registry()
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self._context = Context(self._driver)
        self.device = self._context.architecture

    def versions(self) -> dict[str, str]:
        """The driver's and the toolkit's CUDA, and Triton's version."""
        driver = self._context.driver_version
        return {
            "cuda-driver": f"{driver // 1000}.{driver % 1000 // 10}",
            "cuda-toolkit": str(torch.version.cuda),
            "triton": importlib.metadata.version("triton"),
        }

    def export(self, programs: ProgramSet, progress: Progress) -> ExportedPrograms:
        """See `PreparationTarget.export`.

        Raises DeviceError naming an operator that has no kernel here or a node that no core can hold, and
        CapacityError when the GPU is too small.
        """
        free, total = self._context.memory
        tuning = _load_kernels(programs)
        arena = Arena(self._driver, plan_layout())
        try:
            rig = _CaptureRig(self._driver, self._context, arena, self._images)
            rig.place(programs.buffers)
            with materialised(programs.programs, rig.tensors):
                graphs = rig.capture(programs.programs, tuning, progress)
            return _exported(programs, graphs, rig, in_use=total - free)
        finally:
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()  # they lie in the arena
            arena.close()


def _load_kernels(programs: ProgramSet) -> Tuning:
    """An operator library may keep its GPU kernels in its submodule `cuda`, which registers them; `tuning` of
    `cuda.tuning` is then a context in which kernels are chosen by measurement."""
    name = f"{programs.operator_library.module}.cuda"
    if importlib.util.find_spec(name) is None:
        return nullcontext
    importlib.import_module(name)
    if importlib.util.find_spec(f"{name}.tuning") is None:
        return nullcontext
    tuning: Tuning = importlib.import_module(f"{name}.tuning").tuning
    return tuning


class _CaptureRig:
    """Arena, pools and stream of one export."""

    def __init__(self, driver: CudaDriver, context: Context, arena: Arena, images: ModuleRegistry) -> None:
        self.driver, self.context, self.arena, self.images = driver, context, arena, images
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

    def capture(
        self, programs: tuple[ProgramDefinition, ...], tuning: Tuning, progress: Progress
    ) -> dict[str, GraphSpec]:
        """The graph of every program, by name."""
        try:
            with torch.no_grad(), torch.device("cuda"):
                with tuning():
                    self._compile(programs, progress)
                self._warm_up(_smallest(programs))
                return self._graphs(programs, progress)
        except torch.cuda.OutOfMemoryError as error:
            raise self.scratch.error or self.temporaries.error or error from error

    def _compile(self, programs: tuple[ProgramDefinition, ...], progress: Progress) -> None:
        """Run everything once outside the arena's pools: compiling and tuning leave memory behind."""
        with (
            progress.phase("Compile kernels", total_steps=len(programs)) as bar,
            torch.cuda.stream(torch.cuda.Stream()),
        ):
            for program in programs:
                upload_idle(program, self.tensors)
                with OperatorWatch(program.name, self.context.architecture):
                    program.module()
                torch.cuda.synchronize()
                bar.advance(1)
        torch._C._cuda_clearCublasWorkspaces()

    def _warm_up(self, programs: tuple[ProgramDefinition, ...]) -> None:
        """What is made once for a stream, library workspaces above all, lands in the scratch pool."""
        with torch.cuda.stream(self._stream), torch.cuda.use_mem_pool(self.scratch.pool):
            for program in programs:
                upload_idle(program, self.tensors)
                program.module()
        self._stream.synchronize()

    def _graphs(self, programs: tuple[ProgramDefinition, ...], progress: Progress) -> dict[str, GraphSpec]:
        with progress.phase("Capture programs", total_steps=len(programs)) as bar:
            captured = {}
            for program in programs:
                captured[program.name] = capture(program.module, self.temporaries, self._stream)
                bar.advance(1)
            self.arena.freeze()
            torch.cuda.synchronize()
        return {name: self._described(name, graph) for name, graph in captured.items()}

    def _described(self, name: str, graph: torch.cuda.CUDAGraph) -> GraphSpec:
        try:
            return export_graph(self.driver, self.context, graph.raw_cuda_graph(), self.arena, self.images)
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


def _smallest(programs: tuple[ProgramDefinition, ...]) -> tuple[ProgramDefinition, ...]:
    """Of every kind, the program with the fewest rows: scratch memory is stored in the core."""
    found: dict[ProgramKind, ProgramDefinition] = {}
    for program in programs:
        best = found.get(program.kind)
        if best is None or (program.tokens, program.lanes) < (best.tokens, best.lanes):
            found[program.kind] = program
    return tuple(found.values())


def _exported(
    programs: ProgramSet, graphs: dict[str, GraphSpec], rig: _CaptureRig, *, in_use: int
) -> ExportedPrograms:
    digests = sorted(set().union(*(spec.images for spec in graphs.values())))
    documents = {image_tensor(digest): rig.images.images[digest] for digest in digests}
    ledger = {
        **{name: nbytes for name, nbytes in rig.arena.ledger.items() if name not in BLOCK_REGIONS},
        "kernel_images": sum(len(image) for image in documents.values()),
        # What the GPU held before the arena: this context, and whatever else runs there.
        "context": in_use,
    }
    for name in rig.scratch.buffers:
        documents[name] = buffer_tensor(rig.arena, name).cpu().numpy().tobytes()
    return ExportedPrograms(
        format=PAYLOAD_FORMAT,
        payloads={payload_name(name): encode(spec) for name, spec in graphs.items()},
        documents=documents,
        buffers=(*programs.buffers, *rig.pool_buffers()),
        operator_library=None,
        ledger=ledger,
    )

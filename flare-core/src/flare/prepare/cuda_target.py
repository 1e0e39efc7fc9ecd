"""A GPU as a target: programs run once to make their kernels, then are captured into graphs.

Weights are not read here: what a program does depends on no contents. The arena is gone when the export is
made, so that the same process can load the core at the same addresses.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from functools import cache

import torch

from flare.contract.identity import TunedOperator
from flare.device.base import Device
from flare.device.cuda.arena import Arena
from flare.device.cuda.context import Context
from flare.device.cuda.cuda_device import CudaDevice
from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.graph_spec import PAYLOAD_FORMAT, GraphSpec, encode, image_tensor
from flare.device.cuda.layout import plan_layout
from flare.device.cuda.modules import ModuleRegistry
from flare.device.cuda.torch_pool import buffer_tensor
from flare.device.sizing import BLOCK_REGIONS
from flare.prepare.cuda_capture import CaptureRig
from flare.prepare.cuda_moved import captured_elsewhere
from flare.prepare.cuda_programs import as_written, build_programs
from flare.prepare.cuda_tensors import ArenaTensors, materialised
from flare.prepare.definition import ProgramSet
from flare.prepare.diagnostics import Diagnostics
from flare.prepare.eager import compare_programs
from flare.prepare.kernel_library import Report, load_kernels
from flare.prepare.progress import Progress
from flare.prepare.source_cache import cache_directory
from flare.prepare.target import ExportedPrograms, payload_name


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
    table_copies = 1.0
    prefill_chunk = 4096
    instruction_set: str | None = None

    def __init__(self, diagnostics: Diagnostics | None = None) -> None:
        self._diagnostics = diagnostics or Diagnostics()
        self._driver = CudaDriver()
        self._images = _registry()
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self._context = Context(self._driver)
        self.device = self._context.architecture

    def versions(self) -> dict[str, str]:
        """The driver's and the toolkit's CUDA, Triton's version, and the form of the captured programs."""
        driver = self._context.driver_version
        return {
            "cuda-driver": f"{driver // 1000}.{driver % 1000 // 10}",
            "cuda-toolkit": str(torch.version.cuda),
            "triton": importlib.metadata.version("triton"),
            "forward": self._diagnostics.form.value,
        }

    def export(self, programs: ProgramSet, progress: Progress) -> ExportedPrograms:
        """See `PreparationTarget.export`.

        Raises TraceError, DeviceError naming an operator that has no kernel here or a node that no core can
        hold, and CapacityError when the GPU is too small. With `relocatable`, see `captured_elsewhere` too.
        """
        free, total = self._context.memory
        kernels = load_kernels(programs.operator_library)
        device = torch.device("cuda", torch.cuda.current_device())
        built = build_programs(programs, kernels, device, progress, self._diagnostics.form)
        captured = as_written(built)
        arena = Arena(self._driver, plan_layout())
        try:
            relocatable = self._diagnostics.relocatable
            rig = CaptureRig(self._driver, self._context, arena, self._images, search_variables=relocatable)
            rig.place(programs.buffers)
            with materialised(captured, rig.tensors):
                report = rig.tune(built, kernels.tuning(cache_directory() / "tuning"), progress)
                graphs = rig.capture(built, progress)
                if relocatable:
                    graphs = captured_elsewhere(rig, built, programs.buffers, graphs, progress)
            return _exported(programs, graphs, rig, report, in_use=total - free)
        finally:
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()  # they lie in the arena
            arena.close()

    def examine(
        self, device: Device, programs: ProgramSet, prompt: Sequence[int], progress: Progress
    ) -> None:
        """With `eager`, compare what every program draws from Python with what it draws as captured."""
        if not self._diagnostics.eager:
            return
        assert isinstance(device, CudaDevice), "a core for this target is loaded on a GPU"
        where = torch.device("cuda", torch.cuda.current_device())
        with progress.phase("Compare with Python") as bar:
            for found in compare_programs(device, programs.programs, ArenaTensors(device), where, prompt):
                moved = "another token" if found.found.moved else "the same token"
                progress.note(
                    f"  {found.program}: {moved}, {found.found.largest:.3g} nats (at most {found.bound:.3g})"
                )
                bar.advance(1)


def _exported(
    programs: ProgramSet, graphs: dict[str, GraphSpec], rig: CaptureRig, report: Report | None, *, in_use: int
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
        tuned=_tuned(report),
    )


def _tuned(report: Report | None) -> tuple[TunedOperator, ...]:
    return tuple(
        TunedOperator(
            operator=choice.operator,
            shape=str(choice.shape),
            chosen=choice.name,
            microseconds=dict(choice.microseconds),
        )
        for choice in (report.choices if report is not None else ())
    )

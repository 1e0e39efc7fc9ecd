"""Programs as calls that can be captured: as written, or traced, rewritten for a GPU's kernels, compiled.

All of it needs descriptions of tensors only. It happens before the arena has memory, and what the compiler
holds is given back before.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from flare.prepare.definition import ProgramDefinition, ProgramSet
from flare.prepare.diagnostics import Form
from flare.prepare.forward import Forward, build_forward
from flare.prepare.inductor import ForwardCompiler
from flare.prepare.kernel_library import KernelLibrary
from flare.prepare.progress import Progress
from flare.prepare.source_cache import cache_directory


@dataclass(frozen=True)
class CudaProgram:
    """A program, and the graph that is captured for it; None where its modules are."""

    definition: ProgramDefinition
    forward: Forward | None


def as_written(programs: Iterable[CudaProgram]) -> tuple[ProgramDefinition, ...]:
    """Programs whose modules are captured: their tensors must be memory while that happens."""
    return tuple(program.definition for program in programs if program.forward is None)


def build_programs(
    programs: ProgramSet, kernels: KernelLibrary, device: torch.device, progress: Progress, form: Form
) -> tuple[CudaProgram, ...]:
    """Every program in a form. Raises TraceError."""
    if form is Form.MODULES:
        return tuple(CudaProgram(definition, None) for definition in programs.programs)
    passes = () if kernels.fuse is None else (kernels.fuse,)
    compiler = ForwardCompiler(device, library=kernels.version) if form is Form.COMPILED else None
    built = []
    with progress.phase("Trace programs", total_steps=len(programs.programs)) as bar:
        for definition in programs.programs:
            if compiler is None:
                forward = build_forward(definition, device, passes)
            else:
                forward = compiler.trace(definition, passes)
            built.append((definition, forward))
            bar.advance(1)
    if compiler is not None:
        place_caches()
        with progress.phase("Compile programs", total_steps=len(built)) as bar:
            for _, forward in built:
                compiler.compile(forward)
                bar.advance(1)
        progress.note(f"  {compiler.regions} regions between operators, {compiler.distinct} of them distinct")
        compiler.close()
        gc.collect()
    return tuple(CudaProgram(definition, forward) for definition, forward in built)


def place_caches() -> None:
    """Compiled code is kept beside Flare's other caches, unless the environment says where. Inductor writes
    its default into the environment when it is imported: that says nothing."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        if os.environ.get(variable) in (None, default_cache_dir()):
            os.environ[variable] = str(cache_directory() / name)

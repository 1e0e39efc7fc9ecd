"""Inductor over a program's graph: pointwise work between operators is fused into kernels.

Programs write into memory of their caller, which Inductor sees as functions of copies. So it gets the pure
regions of a graph only; operators and writes stay calls between them, and no copy of a buffer can appear.
Equal regions, of all layers and programs, are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from flare.prepare.definition import ProgramDefinition
from flare.prepare.forward import Forward, GraphPass, build_forward
from flare.prepare.regions import Region, replace_regions
from flare.prepare.trace import TraceError

_ALIGNMENT = 16
_CONFIG: dict[str, Any] = {
    # Results of a region are separate memory, as operators may write them.
    "pattern_matcher": False,
    # Between operators values are rounded as when each operator runs by itself.
    "emulate_precision_casts": True,
    # Operators get the strides that were traced.
    "comprehensive_padding": False,
    "layout_optimization": False,
    # One configuration a kernel: nothing is timed, so that two preparations give one core.
    "triton.autotune_pointwise": False,
    "max_autotune": False,
    "triton.cudagraphs": False,
    # Few small kernels: processes to compile them cost more than they save, and would have to end again.
    "compile_threads": 1,
}

Call = Callable[[list[Tensor]], Sequence[Tensor]]


class CompiledRegion(torch.nn.Module):  # type: ignore[misc]
    """Takes the inputs of a region, returns its outputs. `source` launches the kernels."""

    def __init__(self, call: Call, source: str) -> None:
        super().__init__()
        self._call, self.source = call, source

    def forward(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Run on the current stream."""
        return self._call(list(inputs))


class ForwardCompiler:
    """Compiles forwards for one device, each distinct region once.

    `library` names a state of the operator library: code compiled for another one is not reused.
    """

    def __init__(self, device: torch.device, *, library: str) -> None:
        self._device, self._library = device, library
        self._compiled: dict[str, CompiledRegion] = {}
        self.regions = 0

    @property
    def distinct(self) -> int:
        """Regions that were compiled; `regions` counts all."""
        return len(self._compiled)

    def trace(self, definition: ProgramDefinition, passes: tuple[GraphPass, ...] = ()) -> Forward:
        """A forward in the operators that Inductor lowers. Raises TraceError."""
        from torch._inductor import config
        from torch._inductor.decomposition import select_decomp_table

        with config.patch(_CONFIG):
            return build_forward(definition, self._device, passes, select_decomp_table())

    def compile(self, forward: Forward) -> None:
        """Put compiled code in the place of a traced forward's regions. Raises TraceError for a view that
        begins between 16 bytes, which compiled code would read from a copy."""
        for view in forward.views:
            if view.offset % _ALIGNMENT:
                raise TraceError(
                    f"program {forward.name}: a view of {view.buffer} begins at byte {view.offset}, which is "
                    f"no multiple of {_ALIGNMENT}"
                )
        self.regions += replace_regions(forward.module, self._region)

    def close(self) -> None:
        """End processes of the compiler, and drop what it remembers."""
        from torch._inductor.async_compile import shutdown_compile_workers

        shutdown_compile_workers()
        torch._dynamo.reset()
        self._compiled.clear()

    def _region(self, region: Region) -> CompiledRegion:
        key = _key(region)
        if key not in self._compiled:
            self._compiled[key] = self._compile(region)
        return self._compiled[key]

    def _compile(self, region: Region) -> CompiledRegion:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner
        from torch.compiler import config as compiler_config
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        # The cache of compiled code belongs to a trace that has an environment of shapes.
        fake = FakeTensorMode(shape_env=ShapeEnv())
        state = compiler_config.patch(cache_key_tag=self._library)
        with config.patch(_CONFIG), state, torch.no_grad(), tracing(TracingContext(fake)):
            with fake:
                inputs = [_like(node.meta["val"], self._device) for node in region.inputs]
            module = region_module(region)
            FakeTensorProp(module, fake).propagate_dont_convert_inputs(*inputs)
            compiled: Any = compile_fx_inner(module, inputs, cudagraphs=False, is_inference=True)
        return CompiledRegion(compiled, compiled.source_code)


def _like(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def region_module(region: Region) -> fx.GraphModule:
    """A region by itself."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for index, node in enumerate(region.inputs):
        copies[node] = graph.placeholder(f"input_{index}")
        copies[node].meta = dict(node.meta)
    for node in region.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in region.outputs))
    return fx.GraphModule(torch.nn.Module(), graph)


def _key(region: Region) -> str:
    """Equal for regions that compute the same."""
    names = {node: f"i{index}" for index, node in enumerate(region.inputs)}
    parts = [f"{names[node]} {_layout(node)}" for node in region.inputs]
    for index, node in enumerate(region.nodes):
        arguments = fx.node.map_arg((node.args, dict(node.kwargs)), names.__getitem__)
        barrier = node.meta.get("low_precision_pointwise_barrier", False)
        names[node] = f"n{index}"
        parts.append(f"{node.target} {arguments!r} {barrier}")
    return "\n".join([*parts, *(names[node] for node in region.outputs)])


def _layout(node: fx.Node) -> str:
    value = node.meta["val"]
    return f"{value.dtype} {tuple(value.shape)} {value.stride()}"

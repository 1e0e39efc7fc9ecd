"""Small program modules: registered tensors with storage, traced and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

import flare_components.ops  # noqa: F401  (registers flare::*)
from flare.contract import BufferSpec, BufferView, DType, OperatorList, ProgramKind, Region
from flare.device.cpu_memory import CpuMemory
from flare.device.cpu_operators import OperatorTable
from flare.device.cpu_program import CpuProgram
from flare.device.torch_types import TORCH_DTYPES
from flare.prepare import ProgramDefinition, meta_tensor

Shapes = Mapping[str, tuple[DType, tuple[int, ...]]]


class Module(nn.Module):
    """Runs `body(self)`; every entry of `shapes` is a registered buffer."""

    def __init__(
        self, shapes: Shapes, body: Callable[[Module], object], probes: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.views = {name: BufferView(buffer=name, dtype=t, shape=s) for name, (t, s) in shapes.items()}
        for name, view in self.views.items():
            self.register_buffer(name, meta_tensor(view))
        self.body, self.probes = body, probes

    def forward(self) -> object:
        return self.body(self)


def define(module: nn.Module, views: Mapping[str, BufferView]) -> ProgramDefinition:
    return ProgramDefinition(
        name="p", kind=ProgramKind.RESUME, lanes=1, tokens=1, module=module, views=views, bindings=()
    )


class NoTensors:
    def bytes(self, name: str) -> memoryview:
        raise AssertionError(name)

    load = bytes

    def upload(self, requests: object) -> None:
        assert not list(requests)  # type: ignore[call-overload]


def run(
    listing: OperatorList, shapes: Shapes, values: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Run a traced list on `values`; returns (buffers afterwards, probes)."""
    specs = [
        BufferSpec(name=name, region=Region.SCRATCH, dtype=dtype, shape=shape, offset=1 << 20)
        for name, (dtype, shape) in shapes.items()
    ]
    memory = CpuMemory(specs, NoTensors())
    views = {
        name: torch.from_numpy(memory.bytes(name)).view(TORCH_DTYPES[dtype]).view(shape)
        for name, (dtype, shape) in shapes.items()
    }
    for name, value in values.items():
        views[name].copy_(value)
    with torch.inference_mode():
        probes = CpuProgram("p", listing, memory, OperatorTable(None)).run_probed()
    return views, probes


def names(listing: OperatorList) -> list[str]:
    """Operators in the order they run."""
    return [listing.operators[step.op].name for step in listing.steps]

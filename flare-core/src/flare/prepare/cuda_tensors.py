"""Programs' tensors on the GPU: while programs are captured, meta tensors are memory of the arena."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import nn

from flare.contract import BufferView, ValueSource
from flare.contract.buffers import dense_strides
from flare.device.cuda.torch_pool import Booked, buffer_tensor
from flare.device.torch_types import TORCH_DTYPES
from flare.prepare.definition import ProgramDefinition


class ViewTensors(Protocol):
    """Memory for contract views."""

    def view(self, view: BufferView) -> torch.Tensor:
        """The tensor of a view, with its type, shape and strides."""


class ArenaTensors:
    """Tensors over the buffers of an arena or a loaded core; equal views give the same tensor."""

    def __init__(self, owner: Booked) -> None:
        self._owner = owner
        self._bytes: dict[str, torch.Tensor] = {}
        self._views: dict[BufferView, torch.Tensor] = {}

    def view(self, view: BufferView) -> torch.Tensor:
        """The tensor of a contract view, on the GPU."""
        if view not in self._views:
            if view.buffer not in self._bytes:
                self._bytes[view.buffer] = buffer_tensor(self._owner, view.buffer)
            dtype, size = TORCH_DTYPES[view.dtype], view.dtype.itemsize
            base = self._bytes[view.buffer]
            typed = base[: base.numel() // size * size].view(dtype)
            strides = view.strides or dense_strides(view.shape)
            self._views[view] = typed.as_strided(view.shape, strides, view.offset // size)
        return self._views[view]


@contextmanager
def materialised(
    programs: Iterable[ProgramDefinition], tensors: ViewTensors, *, parameters: bool = True
) -> Iterator[None]:
    """Give every registered tensor of the programs' modules its memory, and the old ones back at the end.

    A parameter is a tensor of its own over that memory; without `parameters` it is the tensor itself, which
    tracing knows.
    """
    replaced: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor | None]] = []
    seen: set[tuple[int, str]] = set()
    try:
        for program in programs:
            for name, view in program.views.items():
                path, _, leaf = name.rpartition(".")
                module = program.module.get_submodule(path)
                if (id(module), leaf) in seen:
                    continue
                seen.add((id(module), leaf))
                tensor = tensors.view(view)
                registered: dict[str, torch.Tensor | None] = module._buffers
                if leaf in module._parameters:
                    registered = module._parameters
                    tensor = nn.Parameter(tensor, requires_grad=False) if parameters else tensor
                replaced.append((registered, leaf, registered[leaf]))
                registered[leaf] = tensor
        yield
    finally:
        for registered, leaf, before in replaced:
            registered[leaf] = before


def upload_idle(program: ProgramDefinition, tensors: ViewTensors) -> None:
    """Give `program` uploads with which it does nothing that is kept: no lane has a slot, lengths are 0."""
    for binding in program.bindings:
        tensors.view(binding.view).fill_(-1 if binding.source is ValueSource.LANE_SLOTS else 0)

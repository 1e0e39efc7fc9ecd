"""Programs on host memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from flare.contract import BufferView
from flare.contract.buffers import dense_strides
from flare.device.torch_types import TORCH_DTYPES
from flare.prepare.forward import Forward

HOST = torch.device("cpu")


class Memory:
    """Buffers by name; equal views are equal memory."""

    def __init__(self, buffers: Mapping[str, Tensor]) -> None:
        self.bytes = {name: tensor.clone().view(-1).view(torch.uint8) for name, tensor in buffers.items()}

    def view(self, view: BufferView) -> Tensor:
        typed = self.bytes[view.buffer][view.offset : view.end].view(TORCH_DTYPES[view.dtype])
        return typed.as_strided(view.shape, view.strides or dense_strides(view.shape))


def run(forward: Forward, memory: Memory) -> None:
    """Run on `memory`."""
    forward.module(*map(memory.view, forward.views))

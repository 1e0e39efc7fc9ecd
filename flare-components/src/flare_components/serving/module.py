"""The base of every program module: tensors are registered together with their contract storage."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from flare.contract import BufferView, ValueBinding, ValueSource
from flare.prepare import meta_tensor


class ProgramModule(nn.Module):
    """A torch module without arguments. `views` maps every registered tensor to its storage; `probes`
    names the tensors that `forward` returns for diagnostics."""

    probes: tuple[str, ...] = ()

    def __init__(self, bindings: tuple[ValueBinding, ...]) -> None:
        super().__init__()
        self.bindings = bindings
        self.views: dict[str, BufferView] = {}
        self.upload: dict[ValueSource, Tensor] = {
            binding.source: self.place(f"upload_{binding.source.value}", binding.view) for binding in bindings
        }

    def place(self, name: str, view: BufferView) -> Tensor:
        """Register a meta tensor for `view` under `name`."""
        tensor = meta_tensor(view)
        self.register_buffer(name.replace(".", "_"), tensor)
        self.views[name.replace(".", "_")] = view
        return tensor

    def place_all(self, prefix: str, views: Mapping[str, BufferView]) -> dict[str, Tensor]:
        """Register many views; returns tensors by their original names."""
        return {name: self.place(f"{prefix}_{name}", view) for name, view in views.items()}

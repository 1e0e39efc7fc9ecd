"""The base of every program module: tensors are registered together with their contract storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from torch import Tensor, nn

from flare.contract import BufferView, ValueBinding, ValueSource
from flare.prepare import meta_tensor

K = TypeVar("K")


class Registered(Mapping[K, Tensor]):
    """Tensors of a module by another key. Looked up when used: tracing replaces registered tensors, so a
    reference that is kept would be a constant of the trace."""

    def __init__(self, owner: nn.Module, names: Mapping[K, str]) -> None:
        self._owner = owner
        self._names = dict(names)

    def __getitem__(self, key: K) -> Tensor:
        tensor: Tensor = getattr(self._owner, self._names[key])
        return tensor

    def __iter__(self) -> Iterator[K]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class ProgramModule(nn.Module):
    """A torch module without arguments. `views` maps every registered tensor to its storage; `probes`
    names the tensors that `forward` returns for diagnostics."""

    probes: tuple[str, ...] = ()

    def __init__(self, bindings: tuple[ValueBinding, ...]) -> None:
        super().__init__()
        self.bindings = bindings
        self.views: dict[str, BufferView] = {}
        self.upload: Registered[ValueSource] = self.place_all(
            "upload", {binding.source: binding.view for binding in bindings if binding.table is None}
        )
        self.table_rows: Registered[str] = self.place_all(
            "table", {binding.table: binding.view for binding in bindings if binding.table is not None}
        )

    def place(self, name: str, view: BufferView) -> str:
        """Register a meta tensor for `view`; returns the attribute's name."""
        attribute = name.replace(".", "_")
        self.register_buffer(attribute, meta_tensor(view))
        self.views[attribute] = view
        return attribute

    def place_all(self, prefix: str, views: Mapping[K, BufferView]) -> Registered[K]:
        """Register many views; returns them by their keys."""
        return Registered(self, {key: self.place(f"{prefix}_{key}", view) for key, view in views.items()})

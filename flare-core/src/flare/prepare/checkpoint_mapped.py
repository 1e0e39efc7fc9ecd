"""A checkpoint whose tensors are made from another store's, so that readers see one set of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flare.prepare.checkpoint import Assets, Checkpoint, TensorStore, known_tensor
from flare.prepare.tensor_map import TensorMap

if TYPE_CHECKING:
    import torch


class MappedCheckpoint(Checkpoint):
    """Presents `store` through `mapping`. Raises CheckpointError when the mapping does not fit the store."""

    def __init__(
        self,
        store: TensorStore,
        mapping: TensorMap,
        *,
        config: Mapping[str, Any],
        assets: Assets,
        revision: str,
    ) -> None:
        mapping.check(store)
        self.config = config
        self.assets = assets
        self.revision = revision
        self.tensors = {target: mapping.info(target, store) for target in mapping.rules}
        self._store = store
        self._mapping = mapping

    def load(self, name: str) -> torch.Tensor:
        """One tensor, made from its sources. Raises CheckpointError for an unknown name."""
        known_tensor(self.tensors, name)
        return self._mapping.assemble(name, self._store)

"""Tables too large to hold: their rows go from the checkpoint into the core a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flare.contract import DType
from flare.errors import CheckpointError
from flare.prepare.checkpoint import TensorStore, known_tensor

PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class TableRule:
    """A table of `shards`, one after the other by rows. A shard is one tensor [rows, ...], or several: a row
    then is the bytes of all their rows, codes and scales of a number format for instance."""

    shards: tuple[tuple[str, ...], ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Every tensor that is read."""
        return tuple(name for shard in self.shards for name in shard)

    def shape(self, store: TensorStore) -> tuple[int, int]:
        """Rows and bytes of a row, from headers. Raises CheckpointError when shards or their parts differ."""
        shards = [self._shard(shard, store) for shard in self.shards]
        widths = {width for _, width in shards}
        if len(widths) != 1:
            first = self.shards[0][0]
            raise CheckpointError(f"{first}: shards have rows of {sorted(widths)} bytes", field=first)
        return sum(rows for rows, _ in shards), widths.pop()

    def pieces(self, store: TensorStore) -> Iterator[memoryview]:
        """The table's bytes in order, a piece at a time; one shard is mapped at a time."""
        import torch

        for shard in self.shards:
            parts = [store.load(name).contiguous() for name in shard]
            views = [part.view(len(part), -1).view(torch.uint8) for part in parts]
            step = max(PIECE_BYTES // sum(view.shape[1] for view in views), 1)
            for start in range(0, len(views[0]), step):
                piece = torch.cat([view[start : start + step] for view in views], 1)
                yield memoryview(piece.numpy()).cast("B")

    def _shard(self, shard: tuple[str, ...], store: TensorStore) -> tuple[int, int]:
        infos = [known_tensor(store.tensors, name) for name in shard]
        rows = {info.shape[0] if info.shape else 0 for info in infos}
        if len(rows) != 1 or 0 in rows or any(len(info.shape) != 2 for info in infos):
            shapes = [info.shape for info in infos]
            raise CheckpointError(f"{', '.join(shard)}: {shapes} are not rows of one table", field=shard[0])
        return rows.pop(), sum(info.shape[1] * DType(info.dtype).itemsize for info in infos)

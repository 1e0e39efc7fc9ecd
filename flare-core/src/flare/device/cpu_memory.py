"""Storage of the CPU device: one aligned block per buffer, typed views by contract."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence, Set
from typing import Protocol

import torch

from flare.contract import BufferSpec, BufferView, Initial, Region
from flare.contract.buffers import dense_strides
from flare.device.base import Bytes
from flare.device.mapped_tables import mapped
from flare.device.torch_types import TORCH_DTYPES
from flare.errors import CapacityError, CoreError


class TensorSource(Protocol):
    """Where initial contents come from: an open core file, or anything like it."""

    def bytes(self, name: str) -> memoryview:
        """The stored bytes of a tensor, zero copy."""

    def load(self, name: str) -> memoryview:
        """A verified copy of a tensor's bytes. Raises CoreError naming a damaged one."""

    def blocks(self, name: str) -> Sequence[tuple[int, int]]:
        """Bytes [begin, end) of the parts of a tensor that are verified each by itself."""

    def read_blocks(self, name: str, first: int, count: int, out: memoryview) -> None:
        """Copy some of those parts into `out`, which is as long, and verify them, in any thread. Raises
        CoreError naming a damaged tensor."""

    def upload(self, requests: Iterable[tuple[str, memoryview]]) -> None:
        """Copy and verify many tensors in parallel. Raises CoreError naming a damaged one."""


# Absent before Python 3.13 on some systems: `man 2 mmap` on Linux.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _zeros(spec: BufferSpec) -> torch.Tensor:
    # Mapped, not written: pages of the cache that no request has reached yet cost no memory and no time, and
    # may be more than the machine has memory for.
    nbytes = max(spec.nbytes, 1)
    try:
        block = mmap.mmap(-1, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    except OSError as error:
        raise CapacityError(
            f"{nbytes} bytes of addresses for buffer {spec.name} are not to be had ({error}): allow them "
            "(vm.overcommit_memory, ulimit -v), or prepare with a bound on memory",
            field=spec.name,
        ) from error
    return torch.frombuffer(block, dtype=torch.uint8)


class CpuMemory:
    """Allocates and fills every buffer of rank 0. Raises CoreError for contents that do not fit.

    Programs may address all of `buffers`; `used`, of which some are shorter, are counted and given out.
    `tables` are the core tensors that stay in the file.
    """

    def __init__(
        self, buffers: Sequence[BufferSpec], source: TensorSource, used: Sequence[BufferSpec] | None = None
    ) -> None:
        self._addressed = {buffer.name: buffer.nbytes for buffer in buffers if buffer.rank == 0}
        self._specs = {buffer.name: buffer for buffer in used or buffers if buffer.rank == 0}
        self._blocks: dict[str, torch.Tensor] = {}
        self._views: dict[BufferView, torch.Tensor] = {}
        self.tables: set[str] = set()
        requests: list[tuple[str, memoryview]] = []
        for spec in (buffer for buffer in buffers if buffer.rank == 0):
            stored = None if spec.tensor is None else source.bytes(spec.tensor)
            if stored is not None and len(stored) != spec.nbytes:
                raise CoreError(f"tensor {spec.tensor} does not fill buffer {spec.name}", field=spec.name)
            if stored is not None and spec.region is Region.TABLE_ROWS:
                assert spec.tensor is not None
                self._blocks[spec.name] = mapped(stored)
                self.tables.add(spec.tensor)
                continue
            # Both are aligned to at least 64 bytes, the alignment of every view offset.
            zero = spec.initial is Initial.ZERO
            block = _zeros(spec) if zero else torch.empty(max(spec.nbytes, 1), dtype=torch.uint8)
            self._blocks[spec.name] = block
            if spec.tensor is not None:
                requests.append((spec.tensor, memoryview(block.numpy()[: spec.nbytes])))
        source.upload(requests)

    def view(self, view: BufferView) -> torch.Tensor:
        """The tensor of a contract view; the same object for equal views."""
        if view not in self._views:
            dtype = TORCH_DTYPES[view.dtype]
            if view.offset % dtype.itemsize:
                raise CoreError(f"view of {view.buffer} at byte {view.offset} is misaligned for {view.dtype}")
            base = self._blocks[view.buffer]
            typed = base[: base.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
            self._views[view] = typed.as_strided(
                view.shape, view.strides or dense_strides(view.shape), view.offset // dtype.itemsize
            )
        return self._views[view]

    def is_constant(self, view: BufferView) -> bool:
        """Whether no program may write it: filled from the core."""
        return self._specs[view.buffer].initial is Initial.BYTES

    def check(self, view: BufferView) -> None:
        """Raise CoreError when `view` names no buffer or reaches outside."""
        if view.end > self._addressed.get(view.buffer, -1):
            raise CoreError(f"view of {view.buffer!r} [..{view.end}] lies outside the contract's buffers")

    def bytes(self, name: str) -> Bytes:
        """Live bytes of a buffer, writable."""
        block: Bytes = self._blocks[name].numpy()[: self._specs[name].nbytes]
        return block

    def release(self, live: Set[str]) -> None:
        """Free plain constants that every program reads through a packed copy."""
        constants = [name for name, spec in self._specs.items() if spec.initial is Initial.BYTES]
        for name in constants:
            if name not in live:
                del self._blocks[name]
        self._views = {view: tensor for view, tensor in self._views.items() if view.buffer in self._blocks}

    @property
    def ledger(self) -> dict[str, int]:
        """Bytes held, by region; mapped tables are not."""
        totals: dict[str, int] = {}
        for name in self._blocks:
            spec = self._specs[name]
            if spec.tensor in self.tables:
                continue
            totals[spec.region.value] = totals.get(spec.region.value, 0) + spec.nbytes
        return totals

    def clear(self) -> None:
        """Drop all storage."""
        self._views.clear()
        self._blocks.clear()

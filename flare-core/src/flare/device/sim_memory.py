"""Storage of the sim device: one byte array per buffer, poisoned where contents are undefined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import BufferSpec, BufferView, DType, Initial, Region
from flare.contract.buffers import dense_strides
from flare.errors import CoreError

POISON = 0xA5

_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.U8: np.dtype(np.uint8),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.U16: np.dtype(np.uint16),
    DType.I32: np.dtype(np.int32),
    DType.U32: np.dtype(np.uint32),
    DType.I64: np.dtype(np.int64),
    DType.U64: np.dtype(np.uint64),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}


class SimMemory:
    """All buffers of rank 0. `read(tensor)` gives the bytes of a core tensor."""

    def __init__(
        self,
        buffers: Sequence[BufferSpec],
        read: Callable[[str], bytes | memoryview | NDArray[np.uint8]],
    ) -> None:
        self._buffers = [buffer for buffer in buffers if buffer.rank == 0]
        self._storage: dict[str, NDArray[np.uint8]] = {}
        for buffer in self._buffers:
            storage = np.zeros(buffer.nbytes, dtype=np.uint8)
            if buffer.initial is Initial.UNDEFINED:
                storage[:] = POISON
            elif buffer.tensor is not None:
                contents = np.frombuffer(read(buffer.tensor), dtype=np.uint8)
                if len(contents) != buffer.nbytes:
                    raise CoreError(
                        f"buffer {buffer.name}: tensor {buffer.tensor!r} has {len(contents)} bytes, "
                        f"expected {buffer.nbytes}",
                        field=f"buffers.{buffer.name}",
                    )
                storage[:] = contents
            self._storage[buffer.name] = storage

    def storage(self, name: str) -> NDArray[np.uint8]:
        """All bytes of a buffer."""
        return self._storage[name]

    def array(self, view: BufferView) -> NDArray[Any]:
        """`view` as an array over its buffer. Raises CoreError for types numpy lacks and for views
        outside their buffer."""
        storage = self._storage.get(view.buffer)
        if storage is None or view.end > len(storage):
            raise CoreError(f"view {view} lies outside the core's buffers", field="views")
        if view.dtype not in _NUMPY:
            raise CoreError(f"the sim device has no element type {view.dtype.value}", field="views")
        strides = view.strides if view.strides is not None else dense_strides(view.shape)
        return np.ndarray(
            view.shape,
            dtype=_NUMPY[view.dtype],
            buffer=storage.data,
            offset=view.offset,
            strides=tuple(stride * view.dtype.itemsize for stride in strides),
        )

    def poison(self, region: Region, block_bytes: int, blocks: Sequence[int]) -> None:
        """Overwrite blocks of the region, which must be one buffer."""
        (buffer,) = (buffer for buffer in self._buffers if buffer.region is region)
        storage = self._storage[buffer.name]
        for block in blocks:
            storage[block * block_bytes : (block + 1) * block_bytes] = POISON

    def ledger(self) -> dict[str, int]:
        """Bytes per region."""
        ledger: dict[str, int] = {}
        for buffer in self._buffers:
            ledger[buffer.region.value] = ledger.get(buffer.region.value, 0) + buffer.nbytes
        return ledger

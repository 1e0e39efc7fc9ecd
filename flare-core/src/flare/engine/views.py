"""Dense typed windows into host byte buffers, checked against the contract when a core is bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import BufferView, DType, PreparedContract, Region
from flare.contract.buffers import dense_strides
from flare.engine.values import ArrayType
from flare.errors import CoreError

_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.U8: np.dtype(np.uint8),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.F32: np.dtype(np.float32),
}


def check_view(view: BufferView, expected: ArrayType, where: str) -> None:
    """Raises CoreError, naming `where`, unless `view` is the `expected` array, dense and aligned."""
    if view.dtype is not expected.dtype or view.shape != expected.shape:
        raise CoreError(
            f"{where} is bound to {view.dtype.value}{list(view.shape)}, "
            f"expected {expected.dtype.value}{list(expected.shape)}",
            field=where,
        )
    if view.strides is not None and view.strides != dense_strides(view.shape):
        raise CoreError(f"{where} is not dense: strides {list(view.strides)}", field=where)
    if view.offset % view.dtype.itemsize:
        raise CoreError(f"{where} starts at unaligned byte {view.offset}", field=where)


def check_region(contract: PreparedContract, view: BufferView, region: Region, where: str) -> None:
    """Raises CoreError unless `view` lies in the buffer that starts `region`."""
    for buffer in contract.buffers:
        if buffer.name == view.buffer and buffer.rank == 0:
            if buffer.region is not region or buffer.offset != 0:
                raise CoreError(
                    f"{where} lies in buffer {view.buffer!r} of region {buffer.region.value}, "
                    f"not at the start of {region.value}",
                    field=where,
                )
            return
    raise CoreError(f"{where} lies in unknown buffer {view.buffer!r}", field=where)


def array_over(storage: NDArray[np.uint8], view: BufferView) -> NDArray[Any]:
    """`view` (dense) as an array over `storage`, the leading bytes of its buffer."""
    return np.ndarray(view.shape, dtype=_NUMPY[view.dtype], buffer=storage.data, offset=view.offset)

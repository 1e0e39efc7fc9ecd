"""Buffers: every byte that outlives a program, and typed views into them."""

from __future__ import annotations

import math
from enum import StrEnum

from pydantic import Field, model_validator

from flare.contract.base import ContractModel
from flare.contract.dtypes import DType


class Region(StrEnum):
    """Where a buffer lives. Devices may back every region by its own virtual range."""

    WEIGHTS = "weights"
    REQUEST_STATE = "request_state"
    PAGES = "pages"
    ROWS = "rows"
    UPLOAD = "upload"
    COMPLETION = "completion"
    IMAGE_FEATURES = "image_features"
    TABLE_ROWS = "table_rows"
    SCRATCH = "scratch"
    GRAPH_POOL = "graph_pool"


class Initial(StrEnum):
    """Contents at load: zeros, the bytes of a core tensor, or anything at all."""

    ZERO = "zero"
    BYTES = "bytes"
    UNDEFINED = "undefined"


class BufferSpec(ContractModel):
    """One allocation. `shape` is in elements of `dtype`, dense unless `strides` (elements) are given.

    `offset` is in bytes from the start of the region on this rank. `tensor` names the core tensor whose
    bytes fill the buffer when `initial` is `bytes`.
    """

    name: str
    region: Region
    dtype: DType
    shape: tuple[int, ...]
    offset: int = Field(ge=0)
    strides: tuple[int, ...] | None = None
    initial: Initial = Initial.ZERO
    tensor: str | None = None
    role: str = ""
    rank: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> BufferSpec:
        check_layout(f"buffer {self.name}", self.shape, self.strides)
        if (self.initial is Initial.BYTES) != (self.tensor is not None):
            raise ValueError(f"buffer {self.name}: initial contents 'bytes' and a tensor name go together")
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of storage spanned by the buffer."""
        return span_bytes(self.dtype, self.shape, self.strides)


class BufferView(ContractModel):
    """A typed, strided window into a buffer: `offset` in bytes from the buffer's start, `strides` in
    elements of `dtype` (dense when absent)."""

    buffer: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int = Field(default=0, ge=0)
    strides: tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> BufferView:
        check_layout(f"view of {self.buffer}", self.shape, self.strides)
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of storage spanned by the view."""
        return span_bytes(self.dtype, self.shape, self.strides)

    @property
    def end(self) -> int:
        """First byte of the buffer behind the view."""
        return self.offset + self.nbytes


def check_layout(what: str, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    """Raise ValueError for a negative extent or stride, or strides of another number of dimensions."""
    if any(extent < 0 for extent in shape):
        raise ValueError(f"{what}: negative extent in shape {shape}")
    if strides is None:
        return
    if len(strides) != len(shape):
        raise ValueError(f"{what}: {len(strides)} strides for {len(shape)} dimensions")
    if any(stride < 0 for stride in strides):
        raise ValueError(f"{what}: negative stride in {strides}")


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def span_bytes(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    """Bytes from the first to behind the last element; 0 for an empty shape."""
    if strides is None:
        return math.prod(shape) * dtype.itemsize
    if any(extent == 0 for extent in shape):
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    return (last + 1) * dtype.itemsize

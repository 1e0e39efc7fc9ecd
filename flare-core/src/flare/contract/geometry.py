"""Page and row geometry: the byte layout that follows from the declared cache schemes.

A page is one contiguous block that holds `page_tokens` tokens of every paged scheme and layer, so that
copying a page copies all of them. A row is one contiguous block with every other state of one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from flare.contract.base import ContractModel
from flare.contract.buffers import BufferView, dense_strides
from flare.contract.dtypes import DType
from flare.contract.schemes import (
    CacheScheme,
    ConvHistoryScheme,
    CounterScheme,
    GroupedScheme,
    PagedScheme,
    RecurrentScheme,
    SavedHiddenScheme,
    TokenHistoryScheme,
    WindowScheme,
)

ALIGNMENT = 64
PAGE_BLOCK_ALIGNMENT = 256


class StateField(ContractModel):
    """A named array inside a page or row: byte `offset`, `shape` in elements of `dtype`."""

    name: str
    offset: int = Field(ge=0)
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


class BlockGeometry(ContractModel):
    """Layout of one page or row: `nbytes` per block and the fields inside, by name."""

    nbytes: int = Field(ge=0)
    fields: tuple[StateField, ...]

    def field(self, name: str) -> StateField:
        """The field called `name`; KeyError when there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def view(self, buffer: str, name: str, blocks: int, layer: int | None = None) -> BufferView:
        """A view `[blocks, *shape]` of a field over all blocks of `buffer`; with `layer`, the leading
        dimension of the field is indexed away."""
        field = self.field(name)
        shape, offset = field.shape, field.offset
        if layer is not None:
            inner = math.prod(shape[1:])
            offset += layer * inner * field.dtype.itemsize
            shape = shape[1:]
        step, rest = divmod(self.nbytes, field.dtype.itemsize)
        assert rest == 0, "blocks are aligned to every element size"
        return BufferView(
            buffer=buffer,
            dtype=field.dtype,
            shape=(blocks, *shape),
            offset=offset,
            strides=(step, *dense_strides(shape)),
        )


class PageGeometry(BlockGeometry):
    """Layout of one page of `page_tokens` tokens."""

    page_tokens: int = Field(gt=0)


class RowGeometry(BlockGeometry):
    """Layout of one continuation row."""


def page_geometry(schemes: Sequence[CacheScheme], page_tokens: int) -> PageGeometry:
    """Layout of a page. Raises ValueError when a group size does not divide `page_tokens`."""
    entries: list[tuple[str, DType, tuple[int, ...]]] = []
    for scheme in schemes:
        if isinstance(scheme, PagedScheme):
            entries.append((scheme.name, scheme.dtype, (scheme.layers, page_tokens, *scheme.shape)))
        elif isinstance(scheme, GroupedScheme):
            groups, rest = divmod(page_tokens, scheme.group)
            if rest:
                raise ValueError(
                    f"scheme {scheme.name}: groups of {scheme.group} tokens "
                    f"do not divide a page of {page_tokens}"
                )
            entries.append((scheme.name, scheme.dtype, (scheme.layers, groups, *scheme.shape)))
    nbytes, fields = _pack(entries)
    return PageGeometry(nbytes=nbytes, fields=fields, page_tokens=page_tokens)


def row_geometry(schemes: Sequence[CacheScheme]) -> RowGeometry:
    """Layout of a row."""
    entries = [entry for scheme in schemes for entry in _row_entries(scheme)]
    nbytes, fields = _pack(entries)
    return RowGeometry(nbytes=nbytes, fields=fields)


def _row_entries(scheme: CacheScheme) -> list[tuple[str, DType, tuple[int, ...]]]:
    match scheme:
        case PagedScheme():
            return []
        case GroupedScheme():
            extent = scheme.group + scheme.overlap
            return [(f"{scheme.name}.open", scheme.open_dtype, (scheme.layers, extent, *scheme.open_shape))]
        case WindowScheme():
            shape: tuple[int, ...] = (scheme.layers, scheme.window, *scheme.shape)
        case RecurrentScheme() | SavedHiddenScheme():
            shape = (scheme.layers, *scheme.shape)
        case ConvHistoryScheme():
            shape = (scheme.layers, scheme.channels, scheme.taps)
        case TokenHistoryScheme():
            shape = (scheme.layers, scheme.length)
        case CounterScheme():
            shape = (scheme.layers, scheme.count)
    return [(scheme.name, scheme.dtype, shape)]


def _pack(entries: Sequence[tuple[str, DType, tuple[int, ...]]]) -> tuple[int, tuple[StateField, ...]]:
    fields: list[StateField] = []
    cursor = 0
    for name, dtype, shape in entries:
        cursor = -(-cursor // ALIGNMENT) * ALIGNMENT
        field = StateField(name=name, offset=cursor, dtype=dtype, shape=shape)
        fields.append(field)
        cursor += field.nbytes
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise ValueError(f"cache scheme names are not unique: {sorted(names)}")
    return -(-cursor // PAGE_BLOCK_ALIGNMENT) * PAGE_BLOCK_ALIGNMENT, tuple(fields)

"""Buffer layout: places named buffers in their regions, aligned, one after the other."""

from __future__ import annotations

from flare.contract import BufferSpec, BufferView, DType, Initial, Region
from flare.contract.geometry import ALIGNMENT


class BufferLayout:
    """Collects the buffers of one rank. Names are unique; offsets are bytes within a region."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self._buffers: dict[str, BufferSpec] = {}
        self._cursor: dict[Region, int] = {}

    def add(
        self,
        name: str,
        region: Region,
        dtype: DType,
        shape: tuple[int, ...],
        *,
        initial: Initial = Initial.ZERO,
        tensor: str | None = None,
        role: str = "",
    ) -> BufferView:
        """Place a dense buffer; returns the view that covers it. Raises ValueError for a repeated name."""
        if name in self._buffers:
            raise ValueError(f"buffer {name!r} is declared twice")
        offset = -(-self._cursor.get(region, 0) // ALIGNMENT) * ALIGNMENT
        spec = BufferSpec(
            name=name,
            region=region,
            dtype=dtype,
            shape=shape,
            offset=offset,
            initial=initial,
            tensor=tensor,
            role=role,
            rank=self.rank,
        )
        self._buffers[name] = spec
        self._cursor[region] = offset + spec.nbytes
        return BufferView(buffer=name, dtype=dtype, shape=shape)

    @property
    def buffers(self) -> tuple[BufferSpec, ...]:
        """Everything placed so far, in order."""
        return tuple(self._buffers.values())

    def region_bytes(self) -> dict[Region, int]:
        """Extent of every region in bytes."""
        return dict(self._cursor)


class Window:
    """Packs dense views into one shared byte buffer that every program uses from its beginning
    (the upload and completion buffers)."""

    def __init__(self, buffer: str) -> None:
        self.buffer = buffer
        self._cursor = 0

    def add(self, dtype: DType, shape: tuple[int, ...]) -> BufferView:
        """The next aligned view of `shape`."""
        offset = -(-self._cursor // ALIGNMENT) * ALIGNMENT
        view = BufferView(buffer=self.buffer, dtype=dtype, shape=shape, offset=offset)
        self._cursor = view.end
        return view

    @property
    def nbytes(self) -> int:
        """Bytes used so far."""
        return self._cursor

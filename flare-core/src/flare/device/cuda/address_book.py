"""Buffers by name and by address: how a pointer is written down, and read back at another base."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import NamedTuple

import msgspec

from flare.errors import DeviceError


class Address(msgspec.Struct, frozen=True, array_like=True):
    """`offset` bytes behind the start of a named buffer; the offset equals its size for an end pointer."""

    buffer: str
    offset: int


class Span(NamedTuple):
    """Addresses [start, start + nbytes) of a buffer; ordered by start."""

    start: int
    nbytes: int
    name: str


class AddressBook:
    """Named, disjoint spans of addresses."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._by_name: dict[str, Span] = {}

    def add(self, name: str, start: int, nbytes: int) -> None:
        """Name a span. A repeated name or an overlap is a bug of the caller."""
        assert name not in self._by_name, f"two buffers are named {name}"
        below, above = self._neighbours(start)
        assert below is None or below.start + below.nbytes <= start, f"{name} overlaps {below}"
        assert above is None or start + nbytes <= above.start, f"{name} overlaps {above}"
        span = Span(start, nbytes, name)
        insort(self._spans, span)
        self._by_name[name] = span

    def span(self, name: str) -> Span:
        """Raises DeviceError for an unknown name."""
        span = self._by_name.get(name)
        if span is None:
            raise DeviceError(f"no buffer is named {name!r} on this device", field=name)
        return span

    def absolute(self, address: Address) -> int:
        """Raises DeviceError for an unknown buffer or an offset behind its end."""
        span = self.span(address.buffer)
        if not 0 <= address.offset <= span.nbytes:
            raise DeviceError(
                f"byte {address.offset} of buffer {address.buffer}, which has {span.nbytes}",
                field=address.buffer,
            )
        return span.start + address.offset

    def resolve(self, value: int, nbytes: int = 0) -> Address | None:
        """The buffer that an address points into, with the `nbytes` behind it; None when there is none.

        An address at a buffer's end belongs to it unless another buffer begins there.
        """
        below, _ = self._neighbours(value)
        if below is None or value + nbytes > below.start + below.nbytes:
            return None
        return Address(below.name, value - below.start)

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans, ascending."""
        return tuple(self._spans)

    def _neighbours(self, start: int) -> tuple[Span | None, Span | None]:
        index = bisect_right(self._spans, start, key=lambda span: span.start)
        below = self._spans[index - 1] if index else None
        above = self._spans[index] if index < len(self._spans) else None
        return below, above

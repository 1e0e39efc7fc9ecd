"""Where each region lies in a rank's range of addresses: recorded in every exported graph."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flare.contract import Region

DEFAULT_BASE = 0x3C05_0000_0000
"""Far below programs, heaps and libraries of Linux on x86-64 and AArch64 under any address randomisation,
above what the driver hands out by itself. Its upper half is no round number, so that two adjacent 32-bit
sizes in a kernel parameter rarely look like an address."""

ALIGNMENT = 1 << 30
_GIB = 1 << 30

# Addresses cost nothing until they are backed.
DEFAULT_SPANS: Mapping[Region, int] = {
    Region.WEIGHTS: 512 * _GIB,
    Region.REQUEST_STATE: 16 * _GIB,
    Region.PAGES: 256 * _GIB,
    Region.ROWS: 64 * _GIB,
    Region.UPLOAD: 4 * _GIB,
    Region.COMPLETION: 4 * _GIB,
    Region.IMAGE_FEATURES: 16 * _GIB,
    Region.TABLE_ROWS: 16 * _GIB,
    Region.SCRATCH: 64 * _GIB,
    Region.GRAPH_POOL: 64 * _GIB,
}


class RegionRange(msgspec.Struct, frozen=True):
    """Addresses [offset, offset + nbytes) from the base that belong to `region`."""

    region: Region
    offset: int
    nbytes: int


class ArenaLayout(msgspec.Struct, frozen=True):
    """Base address and ranges of all regions of one rank."""

    base: int
    ranges: tuple[RegionRange, ...]

    @property
    def nbytes(self) -> int:
        """Addresses to reserve."""
        return max(r.offset + r.nbytes for r in self.ranges)

    def contains(self, address: int) -> bool:
        """Whether an address lies in the reserved range."""
        return self.base <= address < self.base + self.nbytes

    def range(self, region: Region) -> RegionRange:
        """The range of a region, which the layout has."""
        return next(r for r in self.ranges if r.region is region)

    def start(self, region: Region) -> int:
        """First address of a region."""
        return self.base + self.range(region).offset

    def moved(self, base: int) -> ArenaLayout:
        """The same ranges from another base."""
        return ArenaLayout(base, self.ranges)


def plan_layout(base: int = DEFAULT_BASE, spans: Mapping[Region, int] = DEFAULT_SPANS) -> ArenaLayout:
    """Ranges of at least `spans` bytes, one after another in the order of `Region`."""
    ranges, cursor = [], 0
    for region in Region:
        if region in spans:
            nbytes = -(-spans[region] // ALIGNMENT) * ALIGNMENT
            ranges.append(RegionRange(region, cursor, nbytes))
            cursor += nbytes
    return ArenaLayout(base, tuple(ranges))

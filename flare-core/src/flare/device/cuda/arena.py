"""The address arena of one rank: a reserved range, backed by physical memory region by region.

Every byte that a graph can see lies here, at an address that another process can have too. Backing is
monotonic: nothing is returned before `close`, so an address once handed out stays valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flare.contract import Region
from flare.device.cuda.address_book import AddressBook
from flare.device.cuda.driver import OUT_OF_MEMORY, CudaError, Driver
from flare.device.cuda.layout import ArenaLayout
from flare.errors import CapacityError, DeviceError

BUFFER_ALIGNMENT = 256  # bytes, that of cudaMalloc


class Arena:
    """Reserves `layout`'s range on GPU `ordinal`, at its base or, with `anywhere`, where the driver likes.

    `layout` then has the base in use, `book` the named buffers. Raises DeviceError when the base is taken.
    """

    def __init__(
        self, driver: Driver, layout: ArenaLayout, *, ordinal: int = 0, anywhere: bool = False
    ) -> None:
        self._driver = driver
        self._property = _allocation_property(driver.types, ordinal)
        self._access = driver.types.CUmemAccessDesc()
        self._access.location = self._property.location
        self._access.flags = driver.types.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        minimum = driver.types.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granularity = int(driver.call("cuMemGetAllocationGranularity", self._property, minimum))
        self.layout = layout.moved(self._reserve(layout, anywhere))
        self.book = AddressBook()
        self._used = {r.region: 0 for r in layout.ranges}  # bytes handed out
        self._backed = {r.region: 0 for r in layout.ranges}  # bytes with memory behind them
        self._mapped: list[tuple[int, int]] = []
        self._frozen = False
        self._open = True

    def allocate(self, name: str, region: Region, nbytes: int, alignment: int = BUFFER_ALIGNMENT) -> int:
        """A new buffer behind the last one of its region; returns its address.

        Raises DeviceError after `freeze`, CapacityError when the region's range or the GPU is full.
        """
        offset = -(-self._used[region] // alignment) * alignment
        return self.place(name, region, offset, nbytes)

    def place(self, name: str, region: Region, offset: int, nbytes: int, *, backed: int | None = None) -> int:
        """A buffer at `offset` of its region, where a contract put it; otherwise as `allocate`.

        With `backed`, only so many of its bytes get memory now: addresses behind them are named, not usable.
        """
        self._refuse_frozen(name, region, nbytes)
        self.back(region, offset + (nbytes if backed is None else backed))
        address = self.layout.start(region) + offset
        self.book.add(name, address, nbytes)
        self._used[region] = max(self._used[region], offset + nbytes)
        return address

    def back(self, region: Region, nbytes: int) -> None:
        """Memory for the first `nbytes` bytes of a region, as far as it has none. Raises as `allocate`."""
        self._refuse_frozen(region.value, region, nbytes)
        have = self._backed[region]
        missing = self._granules(nbytes) - have
        if missing <= 0:
            return
        span = self.layout.range(region).nbytes
        if have + missing > span:
            raise CapacityError(
                f"region {region.value} needs {have + missing} bytes, its range has {span}",
                field=region.value,
            )
        self._map(self.layout.start(region) + have, missing, self._create(region, missing))
        self._backed[region] += missing

    def share(self, other: Arena, regions: Iterable[Region]) -> None:
        """Back regions, which are empty, with the memory of `other`, of the same ranges: one memory at two
        addresses. It lives until both arenas are closed."""
        for region in regions:
            assert not self._backed[region], f"{region.value} has memory already"
            offset = self.layout.start(region) - other.layout.start(region)
            span, start = other._backed[region], other.layout.start(region)
            for address, nbytes in other._mapped:
                if start <= address < start + span:
                    handle = self._driver.call("cuMemRetainAllocationHandle", address)
                    self._map(address + offset, nbytes, handle)
            self._backed[region] = span

    def backed(self, name: str) -> int:
        """Bytes of a buffer, from its start, that have memory."""
        span = self.book.span(name)
        offset = span.start - self.layout.base
        home = next(r for r in self.layout.ranges if r.offset <= offset < r.offset + r.nbytes)
        return max(min(span.nbytes, home.offset + self._backed[home.region] - offset), 0)

    def freeze(self) -> None:
        """Refuse growth from now on."""
        self._frozen = True

    def _refuse_frozen(self, name: str, region: Region, nbytes: int) -> None:
        if self._frozen:
            raise DeviceError(
                f"buffer {name} ({nbytes} bytes of {region.value}) is wanted after the arena was frozen: "
                "allocate it before capture",
                field=name,
            )

    def _granules(self, nbytes: int) -> int:
        return -(-nbytes // self.granularity) * self.granularity

    def used(self, region: Region) -> int:
        """Bytes from the start of a region to the end of its last buffer."""
        return self._used[region]

    @property
    def ledger(self) -> dict[str, int]:
        """Physical bytes held, by region; whole granules."""
        return {region.value: nbytes for region, nbytes in self._backed.items() if nbytes}

    def close(self) -> None:
        """Return memory and addresses. Idempotent."""
        if not self._open:
            return
        self._open = False
        for address, nbytes in self._mapped:
            self._driver.probe("cuMemUnmap", address, nbytes)
        self._mapped.clear()
        self._driver.probe("cuMemAddressFree", self.layout.base, self.layout.nbytes)

    def _reserve(self, layout: ArenaLayout, anywhere: bool) -> int:
        wanted = 0 if anywhere else layout.base
        address = int(self._driver.call("cuMemAddressReserve", layout.nbytes, 0, wanted, 0))
        if wanted and address != wanted:
            self._driver.probe("cuMemAddressFree", address, layout.nbytes)
            raise DeviceError(
                f"{layout.nbytes} bytes of addresses from {wanted:#x} are not free in this process: "
                "load the core in a fresh process, one core per process and GPU, or relocated",
                field="layout.base",
            )
        return address

    def _map(self, address: int, nbytes: int, handle: Any) -> None:
        try:
            self._driver.call("cuMemMap", address, nbytes, 0, handle, 0)
            self._mapped.append((address, nbytes))
            self._driver.call("cuMemSetAccess", address, nbytes, [self._access], 1)
        finally:
            self._driver.probe("cuMemRelease", handle)  # the mapping keeps the memory

    def _create(self, region: Region, nbytes: int) -> Any:
        try:
            return self._driver.call("cuMemCreate", nbytes, self._property, 0)
        except CudaError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            free, total = self._driver.call("cuMemGetInfo")
            raise CapacityError(
                f"region {region.value} needs {nbytes} bytes more, the GPU has {int(free)} of {int(total)} "
                "free: end other processes, or prepare with smaller capacities",
                field=region.value,
            ) from error


def _allocation_property(types: Any, ordinal: int) -> Any:
    prop = types.CUmemAllocationProp()
    prop.type = types.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = types.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = ordinal
    return prop

"""Addresses: where regions lie, what backs them, who owns a pointer."""

from __future__ import annotations

import pytest
from cuda_fake import GRANULE, FakeDriver

from flare.contract import Region
from flare.device.cuda.address_book import Address, AddressBook
from flare.device.cuda.arena import Arena
from flare.device.cuda.layout import DEFAULT_BASE, ArenaLayout, plan_layout
from flare.errors import CapacityError, DeviceError

GIB = 1 << 30


def small_layout(base: int = DEFAULT_BASE) -> ArenaLayout:
    return plan_layout(base, {Region.WEIGHTS: GIB + 1, Region.PAGES: GIB, Region.UPLOAD: 1})


def test_ranges_follow_one_another() -> None:
    layout = small_layout()
    assert [(r.region, r.offset, r.nbytes) for r in layout.ranges] == [
        (Region.WEIGHTS, 0, 2 * GIB),
        (Region.PAGES, 2 * GIB, GIB),
        (Region.UPLOAD, 3 * GIB, GIB),
    ]
    assert layout.contains(DEFAULT_BASE + 4 * GIB - 1)
    assert not layout.contains(DEFAULT_BASE + 4 * GIB)
    assert layout.moved(GIB).start(Region.PAGES) == 3 * GIB


def test_default_layout_has_every_region() -> None:
    assert {r.region for r in plan_layout().ranges} == set(Region)


def test_buffers_are_backed_by_whole_granules() -> None:
    driver = FakeDriver()
    arena = Arena(driver, small_layout())
    first = arena.allocate("a", Region.WEIGHTS, 10)
    second = arena.allocate("b", Region.WEIGHTS, GRANULE)
    pages = arena.allocate("pages", Region.PAGES, 3 * GRANULE)
    assert (first, second) == (DEFAULT_BASE, DEFAULT_BASE + 256)
    assert pages == DEFAULT_BASE + 2 * GIB
    assert arena.ledger == {"weights": 2 * GRANULE, "pages": 3 * GRANULE}
    # Consecutive granules of one region are one run of memory.
    assert sorted(driver.mapped) == [DEFAULT_BASE, DEFAULT_BASE + GRANULE, pages]
    assert driver.count["cuMemRelease"] == driver.count["cuMemCreate"] == 3
    arena.close()
    arena.close()
    assert driver.mapped == {}
    assert driver.free == 1 << 40
    assert driver.count["cuMemAddressFree"] == 1


def test_one_memory_at_two_addresses() -> None:
    driver = FakeDriver()
    arena = Arena(driver, small_layout())
    first, second = (arena.allocate(name, Region.PAGES, GRANULE) for name in "ab")
    arena.allocate("w", Region.WEIGHTS, 10)
    used = driver.free
    other = Arena(driver, small_layout(DEFAULT_BASE + 64 * GIB))
    other.share(arena, [Region.PAGES, Region.UPLOAD])
    assert other.place("b", Region.PAGES, GRANULE, 2 * GRANULE, backed=0) == second + 64 * GIB
    assert (arena.backed("b"), other.backed("b")) == (GRANULE, GRANULE)
    driver.window(second, 4)[:] = b"abcd"
    assert bytes(driver.window(second + 64 * GIB, 4)) == b"abcd"
    assert driver.free == used
    assert other.allocate("c", Region.PAGES, 10) == first + 64 * GIB + 3 * GRANULE  # of its own
    assert other.backed("b") == 2 * GRANULE
    assert driver.free == used - 2 * GRANULE
    for each in (arena, other):
        each.close()
    assert driver.mapped == {}
    assert driver.free == 1 << 40


def test_no_growth_after_freeze() -> None:
    arena = Arena(FakeDriver(), small_layout())
    arena.allocate("a", Region.WEIGHTS, 10)
    arena.freeze()
    with pytest.raises(DeviceError, match=r"buffer b \(1 bytes of weights\) .* after the arena was frozen"):
        arena.allocate("b", Region.WEIGHTS, 1)


def test_a_range_that_is_taken() -> None:
    driver = FakeDriver(taken=(DEFAULT_BASE,))
    with pytest.raises(DeviceError, match="not free in this process: load the core in a fresh process"):
        Arena(driver, small_layout())
    assert driver.count["cuMemAddressFree"] == 1
    moved = Arena(driver, small_layout(), anywhere=True)
    assert moved.allocate("a", Region.PAGES, 1) == moved.layout.base + 2 * GIB != DEFAULT_BASE + 2 * GIB


def test_a_region_that_is_full() -> None:
    arena = Arena(FakeDriver(), small_layout())
    with pytest.raises(CapacityError, match=r"region pages needs .* its range has 1073741824"):
        arena.allocate("pages", Region.PAGES, GIB + 1)


def test_a_gpu_that_is_full() -> None:
    arena = Arena(FakeDriver(free=GRANULE), small_layout())
    with pytest.raises(CapacityError, match=f"region pages needs {2 * GRANULE} bytes more, the GPU has"):
        arena.allocate("pages", Region.PAGES, GRANULE + 1)


def test_a_failed_mapping_is_given_back() -> None:
    driver = FakeDriver()
    arena = Arena(driver, small_layout())
    driver.fail = {"cuMemSetAccess": 1}
    with pytest.raises(DeviceError, match=r"cuMemSetAccess failed: CUDA_ERROR_1 \(1\)") as caught:
        arena.allocate("a", Region.WEIGHTS, 1)
    assert caught.value.field == "cuMemSetAccess"
    arena.close()
    assert driver.mapped == {}


@pytest.mark.parametrize(
    ("value", "nbytes", "expected"),
    [
        (99, 0, None),
        (100, 0, Address("a", 0)),
        (109, 0, Address("a", 9)),
        (110, 0, Address("b", 0)),  # b begins where a ends
        (130, 0, Address("b", 20)),  # an end pointer
        (131, 0, None),
        (105, 5, Address("a", 5)),
        (105, 6, None),  # reaches into b
        (200, 1, Address("c", 0)),
    ],
)
def test_whose_address_it_is(value: int, nbytes: int, expected: Address | None) -> None:
    book = AddressBook()
    for name, start, size in (("c", 200, 1), ("a", 100, 10), ("b", 110, 20)):
        book.add(name, start, size)
    found = book.resolve(value, nbytes)
    assert found == expected
    if found is not None:
        assert book.absolute(found) == value


def test_addresses_outside_their_buffer() -> None:
    book = AddressBook()
    book.add("a", 100, 10)
    with pytest.raises(DeviceError, match="byte 11 of buffer a, which has 10"):
        book.absolute(Address("a", 11))
    with pytest.raises(DeviceError, match="no buffer is named 'b'"):
        book.absolute(Address("b", 0))

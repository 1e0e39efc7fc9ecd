"""Both stores: what goes in comes out, the longest prefix is found, pages are shared, the bound holds."""

from __future__ import annotations

import random

import pytest
from store_contents import CORE, Checkpoint, found, verify

from flare.cache import PrefixIdentity
from flare.cache.stores import CoreState, DiskStore, HostStore, StoreFault
from flare.errors import CacheError

ROOM = 1 << 20


@pytest.fixture(params=["host", "disk"])
def make(request, tmp_path):
    """Opens a store of so many bytes; the same one again after closing, for disk."""
    stores = []

    def open_store(capacity: int = ROOM):
        store = HostStore(CORE, capacity) if request.param == "host" else DiskStore(tmp_path, CORE, capacity)
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        store.close()


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 63, 64, 65, 127, 128, 200])
def test_every_length_comes_back_whole(make, tokens):
    store = make()
    checkpoint = Checkpoint(range(tokens))
    assert store.put(checkpoint.entry, checkpoint)
    verify(store, range(tokens))
    assert found(store, range(tokens + 30)) == tokens
    assert found(store, range(tokens - 1)) == 0
    assert found(store, [*range(tokens - 1), 999, 998]) == 0


def test_the_longest_prefix_above_what_is_known(make):
    store = make()
    for length in (3, 60, 64, 70, 150):
        checkpoint = Checkpoint(range(length))
        store.put(checkpoint.entry, checkpoint)
    expected = {149: 70, 150: 150, 300: 150, 69: 64, 64: 64, 63: 60, 59: 3, 2: 0}
    assert {length: found(store, range(length)) for length in expected} == expected
    assert found(store, range(149), above=69) == 70
    assert found(store, range(149), above=70) == 0
    assert found(store, range(150), above=149) == 150


def test_another_root_or_conditioning_is_another_prefix(make):
    store = make()
    checkpoint = Checkpoint(range(9))
    store.put(checkpoint.entry, checkpoint)
    assert store.lookup(PrefixIdentity(b"another root", range(9)), 9) is None


def test_pages_of_a_shared_prefix_are_asked_for_and_stored_once(make):
    store = make()
    first, branch, longer = Checkpoint(range(9)), Checkpoint([*range(8), 77]), Checkpoint(range(14))
    for checkpoint in (first, branch, longer, Checkpoint(range(9))):
        assert store.put(checkpoint.entry, checkpoint)
    assert (first.reads, branch.reads, longer.reads) == (2, 0, 1)
    assert len(store) == 3
    unique = 3 * CORE.page_bytes + 3 * (CORE.page_bytes + CORE.row_bytes)
    assert unique <= store.used <= unique + 6 * 600
    for tokens in (range(9), [*range(8), 77], range(14)):
        verify(store, tokens)


def test_the_least_recently_used_goes_first_and_shared_pages_stay(make):
    store = make(20_000)
    old, shared = Checkpoint(range(9)), Checkpoint([*range(8), 77])
    for checkpoint in (old, shared):
        store.put(checkpoint.entry, checkpoint)
    for number in range(40):
        store.reading(shared.entry).close()
        other = Checkpoint([100 + number] * 9)
        assert store.put(other.entry, other)
        assert store.used <= store.capacity
    assert found(store, range(9)) == 0
    verify(store, shared.tokens)
    assert store.counts.evicted == 42 - len(store)


def test_what_is_being_read_stays(make):
    store = make(6000)
    kept = Checkpoint(range(9))
    store.put(kept.entry, kept)
    reading = store.reading(kept.entry)
    for number in range(30):
        other = Checkpoint([100 + number] * 9)
        store.put(other.entry, other)
        assert store.used <= store.capacity
    kept.check(reading)
    reading.close()
    reading.close()
    for number in range(30):
        other = Checkpoint([200 + number] * 9)
        store.put(other.entry, other)
    assert found(store, range(9)) == 0


def test_what_can_never_fit_is_refused_and_drops_nothing(make):
    store = make(6000)
    small, large = Checkpoint(range(5)), Checkpoint(range(500))
    store.put(small.entry, small)
    assert not store.put(large.entry, large)
    assert store.counts.refused == 1
    assert large.reads == 0
    verify(store, range(5))


def test_nothing_is_kept_of_a_source_that_fails(make):
    class Failing(Checkpoint):
        def row(self):
            raise StoreFault("gone")

    store = make()
    good, bad = Checkpoint(range(9)), Failing(range(21))
    store.put(good.entry, good)
    before = store.used
    with pytest.raises(StoreFault):
        store.put(bad.entry, bad)
    assert (len(store), store.used) == (1, before)
    verify(store, range(9))
    again = Checkpoint(range(21))
    assert store.put(again.entry, again)
    verify(store, range(21))


def test_an_entry_that_went_is_not_read(make):
    store = make(6000)
    checkpoint = Checkpoint(range(9))
    store.put(checkpoint.entry, checkpoint)
    for number in range(30):
        other = Checkpoint([100 + number] * 9)
        store.put(other.entry, other)
    assert store.reading(checkpoint.entry) is None


def test_a_store_without_room_for_any_checkpoint_is_refused(make):
    with pytest.raises(CacheError, match="holds no checkpoint"):
        make(CORE.page_bytes)


def test_random_use_never_gives_wrong_bytes_or_exceeds_the_bound(make):
    rng = random.Random(5)
    store = make(12_000)
    trees = [[rng.randrange(5) for _ in range(40)] for _ in range(4)]
    hits = 0
    for _ in range(400):
        tokens = list(rng.choice(trees)[: rng.randrange(1, 41)])
        checkpoint = Checkpoint(tokens)
        if rng.random() < 0.5:
            store.put(checkpoint.entry, checkpoint)
        elif length := found(store, tokens):
            hits += 1
            verify(store, tokens[:length])
        assert store.used <= store.capacity
    assert hits > 20
    assert store.counts.evicted > 20


def test_sizes_of_a_core_decide_what_a_store_is_for():
    other = CoreState("d" * 64, 4, 1 << 20, 1 << 20)
    with pytest.raises(CacheError, match="2097152 bytes"):
        HostStore(other, 1 << 20)

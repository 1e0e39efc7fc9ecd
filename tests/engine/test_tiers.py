"""Restorations and write-back, one property at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest
from engine_harness import Harness, request
from tiered_harness import TieredHarness, make_stores

from flare.cache.stores import DiskStore, StoreFault
from flare.cache.stores.host import HostReading
from flare.contract import Region
from flare.engine.messages import Finished
from flare.engine.tiers import TierTransfers
from flare.errors import ExecutionError
from flare.testing.hash_model import HashModel

MODEL = HashModel(context=150, page_tokens=4, pages=150, snapshot_rows=24)
PROMPT = tuple(range(2, 40))


@pytest.fixture
def harness():
    with_host = TieredHarness(MODEL, make_stores(MODEL, host_blocks=300))
    yield with_host
    with_host.run()
    with_host.check()
    with_host.check_empty()
    with_host.close()


def keep(harness: TieredHarness, prompt: Sequence[int] = PROMPT, name: str = "first") -> tuple[int, ...]:
    """Serve `prompt`, keep everything in the store, and forget it on the device. Returns the history of the
    longest checkpoint: the last token drawn is never consumed."""
    harness.submit(request(name, tuple(prompt), max_tokens=8))
    harness.run()
    harness.scheduler.tree.clear()
    return (*prompt, *harness.output(name)[:-1])


def cached(harness: TieredHarness, name: str) -> int:
    end = harness.end(name)
    assert isinstance(end, Finished)
    return end.cached_tokens


def cached_now(harness: TieredHarness, name: str) -> int:
    """Of a request that runs."""
    (live,) = [live for live in harness.scheduler._running if live.id == name]
    return live.cached_tokens


@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 127, 128, 129])
def test_a_prefix_of_any_length_comes_back_exactly(harness, length):
    prompt = tuple(7 + index % 31 for index in range(length))
    history = keep(harness, prompt)
    harness.submit(request("again", (*history, 5), max_tokens=6))
    harness.run()
    assert cached(harness, "again") == len(history)
    assert harness.transfers.counts.restored_tokens == len(history)
    harness.submit(request("same", prompt, max_tokens=6))  # a whole prompt: resumed without a prefill
    harness.run()
    assert cached(harness, "same") == length


def test_what_comes_back_is_what_was_there_byte_by_byte(harness):
    def blocks() -> dict[int, tuple[bytes, bytes]]:
        tree = harness.scheduler.tree
        return {
            c.tokens: (
                harness.device.read_blocks(Region.ROWS, [c.storage.row]).tobytes(),
                harness.device.read_blocks(
                    Region.PAGES, [*c.chain(), *([c.storage.tail_page] if c.tokens % 4 else [])]
                ).tobytes(),
            )
            for c in tree
        }

    harness.submit(request("first", PROMPT, max_tokens=8))
    harness.run()
    before = blocks()
    harness.scheduler.tree.clear()
    harness.submit(request("again", (*PROMPT, *harness.output("first")[:-1], 5), max_tokens=1))
    while not harness.restores.run_one():
        harness.engine.step()
    harness.engine._end_transfers()
    (longest,) = blocks().items()
    assert longest == (max(before), before[max(before)])


def test_requests_that_share_a_prefix_join_one_transfer_and_one_may_leave(harness):
    history = keep(harness)
    for index in range(3):
        harness.submit(request(f"r{index}", (*history, 50 + index), max_tokens=5, seed=index))
    assert harness.scheduler.restores.active == 1
    assert harness.admissions() == ["first"]
    harness.engine.cancel("r0")  # whose identity the ticket was made with
    harness.run()
    assert harness.transfers.counts.restores == 1
    assert harness.end("r0").reason == "cancelled"
    assert [cached(harness, name) for name in ("r1", "r2")] == [len(history)] * 2


def test_a_transfer_that_nobody_waits_for_any_more_is_still_published(harness):
    history = keep(harness)
    harness.submit(request("gone", (*history, 50)))
    harness.engine.cancel("gone")
    harness.run()
    assert [checkpoint.tokens for checkpoint in harness.scheduler.tree] == [len(history)]
    harness.submit(request("next", (*history, 51), max_tokens=3))
    harness.run()
    assert cached(harness, "next") == len(history)
    assert harness.transfers.counts.restores == 1


def test_a_shorter_restoration_is_joined_and_then_extended(harness):
    history = keep(harness)
    longer = keep(harness, (*history, *range(30, 50)), "longer")
    before = harness.transfers.counts.restores
    harness.submit(request("short", (*PROMPT, 60), max_tokens=3))  # restores the prompt's end
    harness.submit(request("long", (*longer, 61), max_tokens=3))
    assert harness.scheduler.restores.active == 1
    harness.run()
    assert (cached(harness, "short"), cached(harness, "long")) == (len(PROMPT), len(longer))
    assert harness.transfers.counts.restores == before + 2
    pages = len(longer) // 4
    assert harness.scheduler.tree.find(harness_identity(harness, longer), len(longer)).tokens == len(longer)
    assert len({page for c in harness.scheduler.tree for page in c.pages}) <= pages + 2


def harness_identity(harness: TieredHarness, tokens: Sequence[int]):
    from flare.cache import PrefixIdentity

    return PrefixIdentity(harness.scheduler._root, tokens)


def test_streams_go_on_and_others_are_admitted_while_a_restoration_takes_its_time(harness):
    history = keep(harness)
    harness.submit(request("stream", (1, 2, 3), max_tokens=100))
    for _ in range(10):
        harness.engine.step()
    harness.submit(request("waits", (*history, 50), max_tokens=4))
    harness.submit(request("passes", (4, 5, 6), max_tokens=4))
    drawn = len(harness.output("stream"))
    while not isinstance(harness.end("passes"), Finished):
        assert harness.engine.step()
    assert len(harness.output("stream")) >= drawn + 3
    assert harness.admissions() == ["first", "stream", "passes"]
    harness.run()
    assert cached(harness, "waits") == len(history)


def test_a_slot_is_kept_for_who_waits():
    model = HashModel(context=60, page_tokens=4, pages=100, snapshot_rows=6, concurrency=1)
    harness = TieredHarness(model, make_stores(model, host_blocks=300))
    history = keep(harness, PROMPT)
    other = keep(harness, PROMPT[::-1], "second")
    harness.submit(request("waits", (*history, 5), max_tokens=3))
    harness.submit(request("behind", (*other, 6), max_tokens=3))
    harness.submit(request("new", (4, 5, 6), max_tokens=3))
    for _ in range(5):
        harness.engine.step()
    assert harness.scheduler.restores.active == 1  # not for `behind`, which could not run
    harness.run()
    harness.check()
    assert harness.admissions() == ["first", "second", "waits", "behind", "new"]
    harness.close()


@pytest.mark.parametrize("broken", ["row", "page", "tail"])
def test_a_failed_restoration_falls_back_to_what_the_device_has(harness, monkeypatch, broken, caplog):
    history = keep(harness)
    start = PROMPT[:10]
    harness.submit(request("short", start, max_tokens=1))
    harness.run()
    held = harness.scheduler.tree.held_pages

    def fail(reading, *args):
        raise StoreFault("damaged")

    monkeypatch.setattr(HostReading, broken, fail)
    for index in range(2):
        harness.submit(request(f"r{index}", (*history, 50 + index), max_tokens=3))
    with caplog.at_level(logging.WARNING):
        harness.restores.run_one()
        harness.engine._end_transfers()
    assert harness.scheduler.tree.held_pages == held
    assert harness.scheduler.restores.active == 0
    harness.run()
    assert [cached(harness, name) for name in ("r0", "r1")] == [len(start)] * 2
    assert harness.transfers.counts.failed_restores == 1
    assert [record.message for record in caplog.records] == [
        f"a restoration of {len(history)} tokens failed: damaged"
    ]


def test_an_entry_that_vanished_before_it_was_held_fails_the_restoration(harness, monkeypatch):
    history = keep(harness)
    monkeypatch.setattr(type(harness.transfers.stores[0]), "reading", lambda store, entry: None)
    harness.submit(request("r", (*history, 50), max_tokens=3))
    harness.run()
    assert cached(harness, "r") == 0


def test_an_equal_checkpoint_published_meanwhile_stays_and_the_restored_pages_go(harness):
    history = keep(harness)
    harness.submit(request("waits", (*history, 50), max_tokens=3))
    # Meanwhile the same history arises on the device, from a request that does not look into the tiers.
    harness.scheduler.restores._tiers = Blind()
    harness.scheduler.restores._joinable = lambda *_: None
    harness.submit(request("first2", PROMPT, max_tokens=8))
    while not isinstance(harness.end("first2"), Finished) or harness.scheduler.leaving:
        harness.engine.step()
    del harness.scheduler.restores._joinable
    harness.scheduler.restores._tiers = harness.transfers
    before = harness.scheduler.tree.counts.duplicates
    harness.run()
    assert harness.scheduler.tree.counts.duplicates == before + 1
    assert cached(harness, "waits") == len(history)


class Blind:
    def lookup(self, identity, limit, above):
        return None


def test_without_a_row_to_spare_the_request_takes_what_the_device_has():
    model = HashModel(context=60, page_tokens=4, pages=100, snapshot_rows=1, concurrency=2)
    harness = TieredHarness(model, make_stores(model, host_blocks=300))
    history = keep(harness, PROMPT)
    harness.submit(request("leaves", (1, 2, 3), max_tokens=3))
    harness.run()
    harness.submit(request("holds", (1, 2, 3, *harness.output("leaves")), max_tokens=30))
    assert cached_now(harness, "holds") == 5
    harness.submit(request("r", (*history, 5), max_tokens=3))
    harness.run()
    harness.check()
    assert cached(harness, "r") == 0
    harness.close()


def test_each_page_is_copied_to_the_tiers_once_however_long_the_conversation_gets(harness, monkeypatch):
    read: list[int] = []
    read_blocks = harness.device.read_blocks

    def counted(region, blocks):
        if region is Region.PAGES:
            read.extend(blocks)
        return read_blocks(region, blocks)

    monkeypatch.setattr(harness.device, "read_blocks", counted)
    history: tuple[int, ...] = PROMPT
    for turn in range(5):
        harness.submit(request(f"t{turn}", history, max_tokens=4))
        harness.run()
        history = (*history, *harness.output(f"t{turn}"), 9)
    complete = [page for page in read if any(page in c.pages for c in harness.scheduler.tree)]
    assert len(complete) == len(set(complete))


def test_the_newest_checkpoint_is_saved_first_and_what_went_is_not_saved():
    model = HashModel(context=150, page_tokens=4, pages=100, snapshot_rows=16)
    harness = TieredHarness(model, make_stores(model, host_blocks=300))
    for index in range(3):
        harness.submit(request(f"r{index}", (index, 1, 2, 3, 4, 5), max_tokens=6))
        while not isinstance(harness.end(f"r{index}"), Finished) or harness.scheduler.leaving:
            harness.engine.step()
    store = harness.transfers.stores[0]
    harness.saves.run_one()  # began with the first publication
    harness.engine._end_transfers()
    harness.saves.run_one()
    assert [entry.tokens for entry in store._index.entries()] == [6, 11]
    assert store.lookup(harness_identity(harness, (2, 1, 2, 3, 4, 5, *harness.output("r2"))), 11)
    harness.engine._end_transfers()
    harness.scheduler.tree.clear()
    harness.run()
    assert len(store) == 3
    assert not harness.engine.saving
    harness.close()


def test_a_prefix_from_disk_goes_to_memory_too(tmp_path):
    harness = TieredHarness(MODEL, make_stores(MODEL, host_blocks=300, disk_blocks=300, directory=tmp_path))
    history = keep(harness)
    harness.close()
    harness = TieredHarness(MODEL, make_stores(MODEL, host_blocks=300, disk_blocks=300, directory=tmp_path))
    host, disk = harness.transfers.stores
    assert (len(host), len(disk)) == (0, 2)
    harness.submit(request("again", (*history, 5), max_tokens=6))
    harness.run()
    assert cached(harness, "again") == len(history)
    assert host.lookup(harness_identity(harness, history), len(history)).tokens == len(history)
    assert (host.counts.hits, disk.counts.hits) == (0, 1)
    harness.scheduler.tree.clear()
    harness.submit(request("third", (*history, 6), max_tokens=6))
    harness.run()
    assert (host.counts.hits, disk.counts.hits) == (1, 1)
    stats = harness.engine.stats()
    assert [(s.name, s.hits, s.capacity_bytes > s.bytes > 0) for s in stats.stores] == [
        ("host", 1, True),
        ("disk", 1, True),
    ]
    assert (stats.restores, stats.restored_tokens, stats.failed_restores) == (2, 2 * len(history), 0)
    harness.close()


def test_salts_keep_histories_apart_in_the_tiers(harness):
    import msgspec

    history = keep(harness)
    other = msgspec.structs.replace(request("other", (*history, 5), max_tokens=3), cache_salt="mine")
    harness.submit(other)
    harness.run()
    assert cached(harness, "other") == 0
    assert harness.transfers.counts.restores == 0


def test_a_full_disk_disturbs_nobody(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flare.cache.stores.frame._write_all", full)
    harness = TieredHarness(MODEL, make_stores(MODEL, disk_blocks=300, directory=tmp_path))
    with caplog.at_level(logging.WARNING):
        for turn in range(3):
            keep(harness, PROMPT, f"t{turn}")
    harness.check()
    assert caplog.text.count("No space left") == 1
    assert harness.engine.stats().stores[0].failed > 1
    harness.close()


def test_real_threads_under_load_give_right_streams(tmp_path):
    """Transfers really beside the device's thread: everything evicted is brought back while others run."""
    model = HashModel(context=150, page_tokens=4, pages=45, snapshot_rows=5)
    harness = Harness(
        model,
        delay_s=lambda frame, program: 5e-5,
        transfers=lambda device: TierTransfers(
            device, make_stores(model, host_blocks=60, disk_blocks=400, directory=tmp_path)
        ),
    )
    histories: list[tuple[int, ...]] = [tuple(range(first, first + 30)) for first in range(6)]
    for turn in range(8):
        for index in range(6):
            harness.submit(request(f"{index}.{turn}", histories[index], max_tokens=6, seed=turn))
        while harness.engine.step() or harness.engine.saving or harness.scheduler.transferring:
            pass
        for index in range(6):
            histories[index] += (*harness.output(f"{index}.{turn}"), turn)
    harness.check()
    counts = harness.transfers.counts
    assert counts.restores > 5, counts
    assert counts.failed_restores == 0
    harness.check_empty()
    harness.close()


def test_an_engine_that_fails_while_transfers_run_closes(tmp_path):
    harness = Harness(
        MODEL,
        fail_at=40,
        transfers=lambda device: TierTransfers(
            device, make_stores(MODEL, host_blocks=300, disk_blocks=300, directory=tmp_path)
        ),
    )
    for turn in range(4):
        harness.submit(request(f"t{turn}", (*PROMPT, turn), max_tokens=9))
    with pytest.raises(ExecutionError):
        harness.run()
    harness.close()
    assert DiskStore(tmp_path, harness.transfers.stores[1]._core, 1 << 20)  # the lock is free


def test_device_blocks_are_copied_out_and_in():
    harness = Harness(MODEL)
    device = harness.device
    for region, nbytes in (
        (Region.PAGES, device.contract.page.nbytes),
        (Region.ROWS, device.contract.row.nbytes),
    ):
        data = np.random.default_rng(0).integers(0, 256, (2, nbytes), dtype=np.uint8)
        device.write_blocks(region, (5, 2), data)
        copy = device.read_blocks(region, (2, 5))
        assert np.array_equal(copy, data[::-1])
        copy[:] = 0
        assert np.array_equal(device.read_blocks(region, (5, 2)), data)
    harness.close()


def test_different_histories_are_brought_back_beside_each_other(harness):
    one, two = keep(harness), keep(harness, PROMPT[::-1], "second")
    harness.submit(request("r1", (*one, 5), max_tokens=3))
    harness.submit(request("r2", (*two, 5), max_tokens=3))
    assert harness.scheduler.restores.active == 2
    harness.run()
    assert (cached(harness, "r1"), cached(harness, "r2")) == (len(one), len(two))


def test_a_copy_to_the_tiers_is_no_use_of_a_checkpoint(harness):
    ends = []
    for index in range(3):
        harness.submit(request(f"r{index}", (index, 1, 2, 3), max_tokens=1))
        while not isinstance(harness.end(f"r{index}"), Finished) or harness.scheduler.leaving:
            harness.engine.step()
        ends.append((index, 1, 2, 3))
    harness.run()  # saves them, the newest first
    tree = harness.scheduler.tree
    found = [tree.find(harness_identity(harness, tokens), 4) for tokens in ends]
    assert [checkpoint.serial for checkpoint in sorted(found, key=lambda c: c.accessed)] == [
        checkpoint.serial for checkpoint in found
    ]
    assert tree._order.oldest() is found[0]

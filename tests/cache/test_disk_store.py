"""The disk store over restarts, under damage, with neighbours, and on a full disk."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from store_contents import CORE, Checkpoint, found, verify

from flare.cache.stores import DiskStore, StoreFault, frame
from flare.errors import CacheError

ROOM = 1 << 20
LENGTHS = (5, 9, 12, 30)


def fill(directory: Path, lengths=LENGTHS, capacity: int = ROOM) -> None:
    store = DiskStore(directory, CORE, capacity)
    for length in lengths:
        checkpoint = Checkpoint(range(length))
        assert store.put(checkpoint.entry, checkpoint)
    store.close()


def files(directory: Path, kind: str) -> list[Path]:
    return sorted((directory / CORE.identity / kind).iterdir())


def entry_file(directory: Path, length: int) -> Path:
    return directory / CORE.identity / "entries" / Checkpoint(range(length)).entry.name.hex()


def test_everything_is_there_after_a_restart_in_order_of_use(tmp_path):
    fill(tmp_path)
    for age, length in enumerate((12, 5, 30, 9)):
        os.utime(entry_file(tmp_path, length), (1e9 + age, 1e9 + age))
    store = DiskStore(tmp_path, CORE, ROOM)
    assert [entry.tokens for entry in store._index.entries()] == [12, 5, 30, 9]
    for length in LENGTHS:
        verify(store, range(length))
    store.close()


def test_reading_counts_as_use_over_a_restart(tmp_path):
    fill(tmp_path)
    for length in LENGTHS:
        os.utime(entry_file(tmp_path, length), (1e9 + length, 1e9 + length))
    store = DiskStore(tmp_path, CORE, ROOM)
    verify(store, range(5))
    store.close()
    store = DiskStore(tmp_path, CORE, ROOM)
    assert [entry.tokens for entry in store._index.entries()] == [9, 12, 30, 5]
    store.close()


def test_a_smaller_bound_after_a_restart_drops_the_oldest(tmp_path):
    fill(tmp_path)
    store = DiskStore(tmp_path, CORE, 8000)
    assert store.used <= 8000
    assert 0 < len(store) < 4
    for length in LENGTHS:
        if found(store, range(length)) == length:
            verify(store, range(length))
    store.close()


def test_the_files_weigh_no_more_than_is_said(tmp_path):
    store = DiskStore(tmp_path, CORE, 9000)
    for number in range(30):
        checkpoint = Checkpoint([number // 3] * (5 + number))
        store.put(checkpoint.entry, checkpoint)
        held = sum(path.stat().st_size for kind in ("pages", "entries") for path in files(tmp_path, kind))
        assert held <= store.used <= 9000
    store.close()


def altered(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


def reheaded(**changes) -> Callable[[Path], None]:
    """The same file with other header fields, sealed correctly."""

    def rewrite(path: Path) -> None:
        with path.open("rb", buffering=0) as file:
            header = frame.read_header(file)
            payload = file.read()
        path.write_bytes(frame.encode(msgspec.structs.replace(header, **changes)) + payload)

    return rewrite


def directory_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "vanished": lambda path: path.unlink(),
    "empty": altered(lambda data: b""),
    "torn in the prefix": altered(lambda data: data[:20]),
    "torn in the header": altered(lambda data: data[:70]),
    "torn in the payload": altered(lambda data: data[:-1]),
    "longer": altered(lambda data: data + b"x"),
    "a flipped bit of the payload": altered(lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:]),
    "a flipped bit of the header": altered(lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:]),
    "another magic": altered(lambda data: b"X" + data[1:]),
    "a future version": altered(lambda data: data[:8] + b"\x02" + data[9:]),
    "an absurd header length": altered(lambda data: data[:12] + b"\xff\xff\xff\xff" + data[16:]),
    "another core's": reheaded(core="e" * 64),
    "another prefix's": reheaded(name=bytes(16)),
    "zeros, as after a power failure": altered(lambda data: bytes(len(data))),
    "a directory": directory_instead,
}


@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
@pytest.mark.parametrize("kind", ["pages", "entries"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_never_served_and_goes(tmp_path, damage, kind, when):
    fill(tmp_path)
    victim = entry_file(tmp_path, 9) if kind == "entries" else files(tmp_path, "pages")[0]
    if when == "before it is opened":
        DAMAGE[damage](victim)
        store = DiskStore(tmp_path, CORE, ROOM)
    else:
        store = DiskStore(tmp_path, CORE, ROOM)
        DAMAGE[damage](victim)
    broken = 0
    for length in LENGTHS:
        checkpoint = Checkpoint(range(length))
        entry = store.lookup(checkpoint.identity, length)
        if entry is None or entry.tokens < length:
            broken += 1
        if entry is None:
            continue
        expected = Checkpoint(range(entry.tokens))
        with store.reading(entry) as reading:
            try:
                expected.check(reading)
            except StoreFault:
                broken += 1
    assert 1 <= broken <= 4
    assert not victim.exists()
    # What is written again is good again.
    for length in LENGTHS:
        checkpoint = Checkpoint(range(length))
        assert store.put(checkpoint.entry, checkpoint)
        verify(store, range(length))
    store.close()


@pytest.mark.parametrize("damage", ["vanished", "torn in the payload", "a directory"])
def test_entries_whose_pages_are_gone_are_not_offered(tmp_path, damage):
    fill(tmp_path)
    last = Checkpoint(range(12)).entry.pages[-1]
    DAMAGE[damage](tmp_path / CORE.identity / "pages" / last.hex())
    store = DiskStore(tmp_path, CORE, ROOM)
    assert [found(store, range(length)) for length in LENGTHS] == [5, 9, 9, 9]
    assert sorted(entry.tokens for entry in store._index.entries()) == [5, 9]
    assert len(files(tmp_path, "entries")) == 2
    assert store.counts.faults == 0
    store.close()


def test_a_flipped_bit_anywhere_in_a_header_is_noticed_without_reading_the_payload(tmp_path):
    fill(tmp_path)
    path = entry_file(tmp_path, 9)
    data = path.read_bytes()
    for place in range(len(data) - CORE.page_bytes - CORE.row_bytes):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        with path.open("rb", buffering=0) as file, pytest.raises(StoreFault):
            frame.read_header(file)


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": 8},
        {"tokens": 10},
        {"tokens": 13},
        {"pages": b"x"},
        {"pages": b""},
        {"tail": False},
        {"key": None},
        {"key": (b"k" * 16, b"")},
        {"nbytes": 10},
    ],
)
def test_an_entry_that_contradicts_itself_is_removed(tmp_path, change, caplog):
    fill(tmp_path)
    reheaded(**change)(entry_file(tmp_path, 9))
    with caplog.at_level(logging.WARNING):
        store = DiskStore(tmp_path, CORE, ROOM)
    assert found(store, range(9)) == 5
    assert not entry_file(tmp_path, 9).exists()
    assert len(caplog.records) == 1
    store.close()


def test_many_problems_are_one_log_line(tmp_path, caplog):
    fill(tmp_path)
    DAMAGE["torn in the payload"](entry_file(tmp_path, 9))
    DAMAGE["a future version"](entry_file(tmp_path, 12))
    (tmp_path / CORE.identity / "entries" / "notes.txt").write_text("mine")
    (tmp_path / CORE.identity / "entries" / "00.tmp").write_text("half")
    with caplog.at_level(logging.WARNING):
        store = DiskStore(tmp_path, CORE, ROOM)
    assert [record.message.partition("entries: ")[2] for record in caplog.records] == [
        "1 of another version, 2 truncated, 1 unfinished"
    ]
    assert len(files(tmp_path, "entries")) == len(store) == 2
    store.close()


def test_orphaned_pages_go(tmp_path):
    fill(tmp_path)
    for length in LENGTHS[1:]:
        entry_file(tmp_path, length).unlink()
    (tmp_path / CORE.identity / "pages" / "00.tmp").write_text("half")
    store = DiskStore(tmp_path, CORE, ROOM)
    assert len(files(tmp_path, "pages")) == 1
    verify(store, range(5))
    store.close()


def test_one_process_owns_a_directory(tmp_path):
    store = DiskStore(tmp_path, CORE, ROOM)
    with pytest.raises(CacheError, match="in use by another process") as caught:
        DiskStore(tmp_path, CORE, ROOM)
    assert caught.value.field == "disk_cache"
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from store_contents import CORE; from pathlib import Path; from flare.cache.stores import DiskStore;"
        "DiskStore(Path(sys.argv[1]), CORE, 1 << 20)"
    )
    other = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)]
    refused = subprocess.run(other, capture_output=True, text=True, check=False)
    assert "CacheError" in refused.stderr
    assert "in use by another process" in refused.stderr
    store.close()
    assert subprocess.run(other, check=False).returncode == 0


def test_cores_have_directories_of_their_own_and_unused_ones_make_room(tmp_path, caplog):
    cores = {name: replace(CORE, identity=name * 64) for name in "abcd"}
    for age, core in enumerate(cores.values()):
        store = DiskStore(tmp_path, core, ROOM)
        for number in range(6):
            checkpoint = Checkpoint([number] * 9)
            store.put(checkpoint.entry, checkpoint)
        store.close()
        os.utime(tmp_path / core.identity, (1e9 + age, 1e9 + age))
    (tmp_path / "mine").mkdir()
    size = sum(path.stat().st_size for path in (tmp_path / cores["a"].identity).rglob("*") if path.is_file())
    used = DiskStore(tmp_path, cores["a"], ROOM)  # the oldest, but in use
    with caplog.at_level(logging.WARNING):
        store = DiskStore(tmp_path, cores["d"], int(3.5 * size))
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["a", "c", "d", "m"]
    assert "removed" in caplog.text
    assert len(store) == len(used) == 6
    used.close()
    store.close()


def test_a_place_that_cannot_be_used_is_a_typed_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be used as a disk cache"):
        DiskStore(tmp_path / "file", CORE, ROOM)
    with pytest.raises(CacheError, match="holds no checkpoint"):
        DiskStore(tmp_path / "new", CORE, 100)


def test_files_are_for_their_owner_only(tmp_path):
    fill(tmp_path / "new" / "place")
    base = tmp_path / "new" / "place" / CORE.identity
    assert {path.stat().st_mode & 0o077 for path in (base, *base.rglob("*"))} == {0}


@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_a_full_disk_is_one_log_line_and_leaves_nothing_behind(tmp_path, monkeypatch, caplog, fail_at):
    store = DiskStore(tmp_path, CORE, ROOM)
    good = Checkpoint(range(5))
    store.put(good.entry, good)
    before = store.used
    write, calls = frame._write_all, [0]

    def full(descriptor, data):
        calls[0] += 1
        if calls[0] >= 2 * fail_at:
            os.write(descriptor, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        write(descriptor, data)

    monkeypatch.setattr(frame, "_write_all", full)
    with caplog.at_level(logging.WARNING):
        for length in (12, 13, 14):
            checkpoint = Checkpoint([7] * length)
            assert not store.put(checkpoint.entry, checkpoint)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert store.counts.failed == 3
    assert (store.used, len(store)) == (before, 1)
    assert len(files(tmp_path, "pages")) == 1
    assert len(files(tmp_path, "entries")) == 1
    monkeypatch.undo()
    again = Checkpoint([7] * 12)
    assert store.put(again.entry, again)
    verify(store, again.tokens)
    store.close()


def test_a_directory_that_is_removed_under_a_store_is_a_miss(tmp_path):
    fill(tmp_path)
    store = DiskStore(tmp_path, CORE, ROOM)
    shutil.rmtree(tmp_path / CORE.identity)
    entry = store.lookup(Checkpoint(range(30)).identity, 30)
    with store.reading(entry) as reading, pytest.raises(StoreFault):
        reading.row()
    assert found(store, range(30)) == 12
    checkpoint = Checkpoint(range(30))
    assert not store.put(checkpoint.entry, checkpoint)
    store.close()

"""A destination holds its old file or a complete new one, whatever happens to the writer."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from core_samples import CONTRACT, SPECS, payload, write_core

from flare.corefile import CoreReader, CoreWriter, TensorSpec
from flare.errors import CapacityError, FlareError

ONE = TensorSpec.document("a", 100)

CRASH = """
import sys
from flare.corefile import CoreWriter, TensorSpec
writer = CoreWriter(sys.argv[1], [TensorSpec.document("a", 100)])
writer.write("a", bytes(100))
print("written", flush=True)
sys.stdin.read()
"""


def test_an_error_before_seal_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="too many"), CoreWriter(tmp_path / "c", [ONE]) as writer:
        writer.write("a", bytes(101))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_destination_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    target = tmp_path / "c"
    child = subprocess.Popen(
        [sys.executable, "-c", CRASH, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    with CoreWriter(target, [ONE]):
        assert len(list(tmp_path.iterdir())) == 2, "the file of a living writer was removed"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert not target.exists()
    assert len(list(tmp_path.iterdir())) == 1
    write_core(target)
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_taken_for_stale_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, taken = fcntl.flock, []

    def late(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not taken:
            taken.append(os.readlink(f"/proc/self/fd/{fd}"))
            os.unlink(taken[0])
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write_core(tmp_path / "c")
    assert taken
    with CoreReader(tmp_path / "c") as reader:
        assert reader.verify() == ()


def test_an_existing_core_stays_until_the_new_one_is_complete(core: Path) -> None:
    old = core.read_bytes()
    with CoreReader(core) as reader:
        with CoreWriter(core, [ONE]) as writer:
            writer.write("a", bytes(100))
            assert core.read_bytes() == old
            writer.seal("{}")
        assert list(core.parent.iterdir()) == [core]
        assert reader.verify() == ()  # the open reader keeps the file it opened
    with CoreReader(core) as reader:
        assert list(reader.tensors) == ["a"]


def test_contents_are_durable_before_the_name_and_the_name_before_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    writer = CoreWriter(tmp_path / "c", [ONE])
    writer.write("a", bytes(100))
    fsync, replace, pwrite = os.fsync, os.replace, os.pwrite

    def traced_fsync(fd: int) -> None:
        calls.append("fsync directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "fsync file")
        fsync(fd)

    def traced_replace(source: Path, target: Path) -> None:
        calls.append("rename")
        replace(source, target)

    def traced_pwrite(fd: int, data: memoryview, offset: int) -> int:
        calls.append("write")
        return pwrite(fd, data, offset)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "replace", traced_replace)
    monkeypatch.setattr(os, "pwrite", traced_pwrite)
    writer.seal("{}")
    writer.abort()
    assert calls == ["write", "write", "fsync file", "rename", "fsync directory"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_publication_keeps_the_old_core(
    core: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    old = core.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with CoreWriter(core, [ONE]) as writer:
        writer.write("a", bytes(100))
        monkeypatch.setattr(os, failing, fail)
        with pytest.raises(OSError, match="Input/output"):
            writer.seal("{}")
    assert core.read_bytes() == old
    assert list(core.parent.iterdir()) == [core]


def test_an_unsealed_file_is_not_a_core(tmp_path: Path) -> None:
    with CoreWriter(tmp_path / "c", [ONE]) as writer:
        writer.write("a", bytes(100))
        (name,) = tmp_path.iterdir()
        with pytest.raises(FlareError, match="not a runtime core"):
            CoreReader(name)


def test_concurrent_writers_of_one_destination_do_not_mix(tmp_path: Path) -> None:
    target, failures = tmp_path / "c", []

    def prepare(value: int) -> None:
        try:
            for _ in range(5):
                with CoreWriter(target, [ONE], header_budget_bytes=1000) as writer:
                    writer.write("a", (bytes([value]) for _ in range(100)))
                    writer.seal(f'{{"value":{value}}}')
        except Exception as error:  # re-raised in the test's thread
            failures.append(error)

    threads = [threading.Thread(target=prepare, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(tmp_path.iterdir()) == [target]
    with CoreReader(target) as reader:
        assert reader.contract_json == f'{{"value":{reader.load("a")[0]}}}'


def test_tensors_can_be_written_from_several_threads(tmp_path: Path, core: Path) -> None:
    with CoreWriter(tmp_path / "c", SPECS, header_budget_bytes=4096) as writer:
        threads = [threading.Thread(target=writer.write, args=(s.name, payload(s))) for s in SPECS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.seal(CONTRACT)
    assert (tmp_path / "c").read_bytes() == core.read_bytes()


def test_a_contract_beyond_its_room_can_be_retried(tmp_path: Path) -> None:
    with CoreWriter(tmp_path / "c", [ONE], header_budget_bytes=10) as writer:
        writer.write("a", bytes(100))
        with pytest.raises(CapacityError, match="has room for") as caught:
            writer.seal('{"x":"' + "y" * 5000 + '"}')
        assert caught.value.field == "header_budget_bytes"
        writer.seal('{"x":1}')
    with CoreReader(tmp_path / "c") as reader:
        assert reader.contract_json == '{"x":1}'


@pytest.mark.parametrize("quote", ['"', "x", "\n", "é"])
def test_the_budget_holds_what_it_promises(tmp_path: Path, quote: str) -> None:
    contract = quote * 1000
    cost = {'"': 2000, "\n": 2000, "é": 2000, "x": 1000}[quote]
    with CoreWriter(tmp_path / "c", [ONE], header_budget_bytes=cost) as writer:
        writer.write("a", bytes(100))
        writer.seal(contract)
    with CoreReader(tmp_path / "c") as reader:
        assert reader.contract_json == contract


def test_a_core_larger_than_the_disk_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match=r"needs \d+ bytes, its disk has \d+ free"):
        CoreWriter(tmp_path / "c", [TensorSpec.document("a", 2**50)])
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_a_capacity_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with CoreWriter(tmp_path / "c", [ONE]) as writer:
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(CapacityError, match="no room left"):
            writer.write("a", bytes(100))
    assert list(tmp_path.iterdir()) == []

"""The load path: many tensors copied and verified in parallel."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from core_samples import SPECS, payload, split

from flare.contract import DType
from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec
from flare.errors import CoreError

BIG = TensorSpec("big", DType.U8, (9_000_000,), Role.WEIGHT)  # three blocks of 4 MiB


@pytest.fixture
def big(tmp_path: Path) -> Path:
    with CoreWriter(tmp_path / "big", [BIG]) as writer:
        writer.write(BIG.name, payload(BIG))
        return writer.seal("{}")


def destinations() -> list[tuple[str, np.ndarray]]:
    return [(spec.name, np.full(spec.nbytes, 255, np.uint8)) for spec in SPECS]


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_upload_fills_every_destination(core: Path, threads: int | None) -> None:
    with CoreReader(core) as reader:
        targets = destinations()
        reader.upload([(name, memoryview(out)) for name, out in targets], threads=threads)
        for spec, (_, out) in zip(SPECS, targets, strict=True):
            assert out.tobytes() == payload(spec)


def test_upload_into_typed_destinations(core: Path) -> None:
    with CoreReader(core) as reader:
        out, none = np.zeros((5, 2), np.int64), np.zeros((0, 3), np.float32)
        reader.upload([("weights/ids", memoryview(out)), ("weights/none", memoryview(none))])
        assert out.tobytes() == payload(SPECS[4])


@pytest.mark.parametrize("first", [0, 1, 2])
def test_neighbouring_blocks_are_read_at_once(big: Path, first: int) -> None:
    with CoreReader(big) as reader:
        blocks, whole = reader.blocks("big"), reader.bytes("big")
        for count in range(1, len(blocks) - first + 1):
            begin, end = blocks[first][0], blocks[first + count - 1][1]
            out = bytearray(end - begin)
            reader.read_blocks("big", first, count, memoryview(out))
            assert out == whole[begin:end]


def test_progress_counts_every_byte_in_the_calling_thread(big: Path) -> None:
    with CoreReader(big) as reader:
        for run in (
            lambda progress: reader.upload([("big", memoryview(bytearray(BIG.nbytes)))], progress=progress),
            lambda progress: reader.verify(progress=progress),
        ):
            seen: list[tuple[int, bool]] = []
            run(lambda n, seen=seen: seen.append((n, threading.current_thread() is threading.main_thread())))
            assert seen == [(4 << 20, True), (4 << 20, True), (9_000_000 - (8 << 20), True)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("offset", [0, 5_000_000, 8_999_999])
def test_upload_stops_at_a_damaged_block(big: Path, threads: int, offset: int) -> None:
    raw = bytearray(big.read_bytes())
    raw[len(raw) - len(split(bytes(raw))[1]) + offset] ^= 16
    big.write_bytes(raw)
    damaged = f"big is damaged in block {offset // (4 << 20)}"
    with CoreReader(big) as reader, pytest.raises(CoreError, match=damaged) as caught:
        reader.upload([("big", memoryview(bytearray(BIG.nbytes)))], threads=threads)
    with CoreReader(big) as reader, pytest.raises(CoreError, match=f"block {offset // (4 << 20)}"):
        reader.read_blocks("big", 0, 3, memoryview(bytearray(BIG.nbytes)))
    assert caught.value.field == "big"
    with CoreReader(big) as reader, pytest.raises(CoreError, match=damaged):
        reader.read_blocks("big", 0, 3, memoryview(bytearray(BIG.nbytes)))


def test_ill_fitting_or_unknown_requests_fail_before_anything_is_copied(core: Path) -> None:
    with CoreReader(core) as reader:
        embed = memoryview(bytearray(SPECS[0].nbytes))
        for bad, match in (("weights/norm", "its destination 27"), ("weights/other", "no tensor")):
            with pytest.raises(CoreError, match=match) as caught:
                reader.upload([("weights/embed", embed), (bad, memoryview(bytearray(27)))])
            assert caught.value.field == bad
        assert not any(embed)
        for access in (reader.bytes, reader.load):
            with pytest.raises(CoreError, match="no tensor"):
                access("pad/0000")


def test_unverified_load_returns_what_is_there(core: Path) -> None:
    raw = core.read_bytes()
    position = len(raw) - len(split(raw)[1])
    core.write_bytes(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])
    with CoreReader(core) as reader:
        loaded = reader.load("weights/embed", verify=False)
        assert loaded == reader.bytes("weights/embed")
        assert loaded[1:] == payload(SPECS[0])[1:]
        assert loaded[0] == payload(SPECS[0])[0] ^ 1


def test_opening_reads_no_payload(tmp_path: Path) -> None:
    """A core of 3 GB of zeros (a sparse file) opens and describes itself without its digests being right."""
    spec = TensorSpec("w", DType.U8, (3_000_000_000,), Role.WEIGHT)
    with CoreWriter(tmp_path / "sparse", [spec]) as writer:
        writer._missing.clear()
        writer.seal("{}")
    with CoreReader(tmp_path / "sparse") as reader:
        assert reader.tensors["w"].nbytes == 3_000_000_000
        with pytest.raises(CoreError, match="block 700"):
            reader.read_block("w", 700)

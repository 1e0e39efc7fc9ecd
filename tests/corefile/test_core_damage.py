"""Any flipped bit and any cut is found, and named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from core_samples import SPECS, payload, split
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flare.corefile import CoreReader
from flare.errors import CoreError


def holder(raw: bytes, position: int) -> str:
    """The entry whose bytes hold file position `position`, or `header`."""
    document, data = split(raw)
    offset = position - (len(raw) - len(data))
    for name, entry in document.items():
        if name != "__metadata__" and entry["data_offsets"][0] <= offset < entry["data_offsets"][1]:
            return name
    return "header"


def flip(raw: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[position] ^= 1 << bit
    return bytes(changed)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "damaged.core.safetensors"


@given(position=st.integers(0, 10**9), bit=st.integers(0, 7))
@settings(max_examples=300, deadline=None)
def test_one_flipped_bit_anywhere_is_found(core_bytes: bytes, target: Path, position: int, bit: int) -> None:
    position %= len(core_bytes)
    target.write_bytes(flip(core_bytes, position, bit))
    name = holder(core_bytes, position)
    if name in ("header", "checksum/sha256"):
        with pytest.raises(CoreError, match=re.escape(str(target))):
            CoreReader(target)
        return
    with CoreReader(target) as reader:
        assert reader.verify() == (name,)
        for spec in SPECS:
            if spec.name == name:
                with pytest.raises(CoreError, match=name) as caught:
                    reader.load(name)
                assert caught.value.field == name
            else:
                assert reader.load(spec.name) == payload(spec)


@given(position=st.integers(0, 10**9), bit=st.integers(0, 7))
@example(position=0, bit=0)
@example(position=0, bit=3)
@example(position=7, bit=7)
@example(position=8, bit=0)
@settings(max_examples=300, deadline=None)
def test_one_flipped_bit_in_the_header_is_found(
    core_bytes: bytes, target: Path, position: int, bit: int
) -> None:
    room = 8 + int.from_bytes(core_bytes[:8], "little")
    target.write_bytes(flip(core_bytes, position % room, bit))
    with pytest.raises(CoreError):
        CoreReader(target)


def test_every_bit_of_version_and_digest_counts(core_bytes: bytes, target: Path) -> None:
    for position in range(8, 8 + 120):
        for bit in range(8):
            target.write_bytes(flip(core_bytes, position, bit)[: 2**16])
            with pytest.raises(CoreError):
                CoreReader(target)


def test_padding_between_header_and_data_counts(core_bytes: bytes, target: Path) -> None:
    room = 8 + int.from_bytes(core_bytes[:8], "little")
    assert core_bytes[room - 1 : room] == b" "
    target.write_bytes(core_bytes[: room - 1] + b"\n" + core_bytes[room:])
    with pytest.raises(CoreError, match="damaged") as caught:
        CoreReader(target)
    assert caught.value.field == "flare.header"


def test_verify_names_every_damaged_tensor_once_in_file_order(core_bytes: bytes, target: Path) -> None:
    document, data = split(core_bytes)
    start = len(core_bytes) - len(data)
    raw = core_bytes
    for name, offset in (
        ("table/ngrams", 0),
        ("table/ngrams", 140_000),
        ("weights/norm", 3),
        ("pad/0000", 1),
    ):
        raw = flip(raw, start + document[name]["data_offsets"][0] + offset, 2)
    target.write_bytes(raw)
    with CoreReader(target) as reader:
        assert set(reader.verify(threads=2)) == {"table/ngrams", "weights/norm", "pad/0000"}
        assert reader.verify(threads=1) == reader.verify(threads=2)
        begins = [document[name]["data_offsets"][0] for name in reader.verify()]
        assert begins == sorted(begins)


def test_a_table_is_verified_block_by_block(core_bytes: bytes, target: Path) -> None:
    document, data = split(core_bytes)
    begin = len(core_bytes) - len(data) + document["table/ngrams"]["data_offsets"][0]
    target.write_bytes(flip(core_bytes, begin + 65536 + 17, 5))
    whole = payload(SPECS[6])
    with CoreReader(target) as reader:
        assert reader.placed("table/ngrams").blocks == 3
        assert reader.read_block("table/ngrams", 0) == whole[:65536]
        with pytest.raises(CoreError, match="block 1"):
            reader.read_block("table/ngrams", 1)
        out = memoryview(bytearray(65536))
        assert reader.read_block("table/ngrams", 2, out) == whole[131072:]
        for index in (-1, 3):
            with pytest.raises(IndexError):
                reader.read_block("table/ngrams", index)


def test_truncation_at_every_boundary_is_an_error(core_bytes: bytes, target: Path) -> None:
    document, data = split(core_bytes)
    start = len(core_bytes) - len(data)
    edges = {0, 8, 9, 200, start, len(core_bytes)}
    edges |= {start + n for k, e in document.items() if k != "__metadata__" for n in e["data_offsets"]}
    for edge in edges:
        for size in {edge - 1, edge, edge + 1} & set(range(len(core_bytes))):
            target.write_bytes(core_bytes[:size])
            with pytest.raises(CoreError, match="truncated") as caught:
                CoreReader(target)
            assert caught.value.field == "size"


def test_bytes_behind_the_end_are_an_error(core_bytes: bytes, target: Path) -> None:
    target.write_bytes(core_bytes + b"\0")
    with pytest.raises(CoreError, match="foreign bytes"):
        CoreReader(target)


def test_truncation_while_open_is_an_error_not_a_crash(core_bytes: bytes, target: Path) -> None:
    target.write_bytes(core_bytes)
    with CoreReader(target) as reader:
        with target.open("r+b") as file:
            file.truncate(len(core_bytes) - 150_000)
        with pytest.raises(CoreError, match="truncated while open"):
            reader.load("table/ngrams")

"""Rows of a mapped table are those of the file, and pages that they came from are let go."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from flare.device.table_reader import ROWS_BETWEEN, TableReader

ROW = 48
ROWS = 200_000


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray:
    """A table that begins and ends within pages of its file."""
    numbers = np.arange(ROWS, dtype=np.uint64).repeat(ROW // 8)
    path = tmp_path / "table"
    path.write_bytes(b"head" * 30 + numbers.tobytes() + b"tail" * 30)
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return np.frombuffer(view[120 : 120 + ROWS * ROW], dtype=np.uint8)


def mapped_kib(address: int) -> int:
    """Resident KiB of the mapping that holds `address`."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1])
    raise AssertionError("no such mapping")


def test_rows_are_those_of_the_file_in_any_shape(mapped: np.ndarray) -> None:
    read = TableReader(mapped, ROW)
    chosen = np.random.default_rng(0).integers(0, ROWS, (700, 4))
    found = read(chosen)
    assert found.shape == (700, 4, ROW)
    assert np.array_equal(found.view(np.uint64)[..., 0], chosen)
    assert np.array_equal(found.view(np.uint64)[..., -1], chosen)
    assert read(np.zeros((0, 4), np.int64)).shape == (0, 4, ROW)


def test_what_was_read_does_not_stay(mapped: np.ndarray) -> None:
    address = mapped.ctypes.data + mapped.nbytes // 2
    read = TableReader(mapped, ROW)
    every = np.arange(0, ROWS, 7)
    mapped.reshape(-1, ROW)[every].sum()
    assert mapped_kib(address) > mapped.nbytes / 1024 * 0.9  # the measurement sees it
    read(every[: len(every) // ROWS_BETWEEN * ROWS_BETWEEN])
    assert mapped_kib(address) < 64


def test_a_table_in_memory_is_read_too() -> None:
    contents = np.arange(60, dtype=np.uint8)
    assert TableReader(contents, 6)(np.array([9, 0])).tolist() == [
        list(range(54, 60)),
        list(range(6)),
    ]

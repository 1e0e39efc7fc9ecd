"""Preparing a checkpoint of any number format holds its weights once, and little else.

Measured with a third of a gibibyte of weights, as `scripts/preparation-memory` does with four. What is fixed
(programs traced, libraries used for the first time, packed copies of layers that are not experts) is a
quarter of a gibibyte at most; a second copy of the experts would be more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from large_entries import FORMATS, GIB, large_config
from preparation import bound, measure
from resident import peak_resident

WEIGHTS, TABLE = GIB // 3, 48 << 20
FIXED = 256 << 20
LONGER = ("bf16", "fp8", "nvfp4")


@pytest.mark.parametrize("name", FORMATS)
def test_peak_follows_the_weights(tmp_path: Path, name: str, complete: bool) -> None:
    if name in LONGER and not complete:
        pytest.skip("with --complete")
    found = measure(name, WEIGHTS, TABLE, tmp_path)
    assert abs(found["weights"] / WEIGHTS - 1) < 0.1
    assert found["tables"] > TABLE
    print(f"{found['beyond'] >> 20} MiB for {found['weights'] >> 20} MiB")
    assert found["weights"] < found["beyond"] < bound(found["weights"], FIXED)
    assert found["weights"] < found["peak_proportional"] < found["peak"]


@pytest.mark.parametrize("name", FORMATS)
def test_sizes_are_those_asked_for_and_experts_are_most_of_it(name: str) -> None:
    for size in (WEIGHTS, GIB):
        config, entries = large_config(name, size, TABLE)
        table = sum(entry.nbytes for entry in entries if ".ngram_embedding." in entry.name)
        experts = sum(entry.nbytes for entry in entries if ".experts." in entry.name)
        weights = sum(entry.nbytes for entry in entries) - table
        assert abs(weights / size - 1) < 0.05
        assert abs(table / TABLE - 1) < 0.05
        assert experts > 0.6 * weights
        assert ("quantization_config" in config) == (not name.startswith("bf16"))


def test_a_size_without_experts_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"bytes are too few for bf16; \d+ are not"):
        large_config("bf16", 1 << 20, TABLE)
    with pytest.raises(ValueError, match="a table of 1000 bytes is too small"):
        large_config("bf16", WEIGHTS, 1000)


def test_the_peak_is_of_this_process_and_grows() -> None:
    before = peak_resident()
    held = bytearray(before + (64 << 20))  # more than was ever resident
    held[::4096] = b"1" * len(held[::4096])
    assert peak_resident() > before + (32 << 20)

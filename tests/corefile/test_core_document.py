"""The reader printed in the documentation reads what the writer writes, and finds damage by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_samples import CONTRACT, SPECS, payload
from hypothesis import given, settings
from hypothesis import strategies as st

PAGE = Path(__file__).parents[2] / "docs" / "core-file.md"

ReadCore = Callable[[Path], tuple[str, dict[str, tuple[str, list[int], bytes]]]]


@pytest.fixture(scope="session")
def read_core() -> ReadCore:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), namespace)
    reader: ReadCore = namespace["read_core"]
    return reader


def test_the_documented_reader_reads_a_core(read_core: ReadCore, core: Path) -> None:
    contract, tensors = read_core(core)
    assert contract == CONTRACT
    assert tensors == {spec.name: (spec.dtype.value, list(spec.shape), payload(spec)) for spec in SPECS}


@given(position=st.integers(0, 10**9), bit=st.integers(0, 7))
@settings(max_examples=50, deadline=None)
def test_the_documented_reader_finds_a_flipped_bit(
    read_core: ReadCore,
    core_bytes: bytes,
    tmp_path_factory: pytest.TempPathFactory,
    position: int,
    bit: int,
) -> None:
    raw = bytearray(core_bytes)
    raw[position % len(raw)] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "documented"
    path.write_bytes(raw)
    with pytest.raises(ValueError):
        read_core(path)

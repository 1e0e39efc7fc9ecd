"""The benchmark client is a script with modules beside it: its folder is put on the import path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from fake_openai import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A fresh fake server on a free loopback port."""
    with FakeServer() as fake:
        yield fake

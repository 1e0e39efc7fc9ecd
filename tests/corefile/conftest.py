"""The small core of `core_samples`, as a file and as bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from core_samples import write_core


@pytest.fixture
def core(tmp_path: Path) -> Path:
    return write_core(tmp_path / "small.core.safetensors")


@pytest.fixture(scope="session")
def core_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_core(tmp_path_factory.mktemp("core") / "small.core.safetensors").read_bytes()

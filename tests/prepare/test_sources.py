"""Pins and paths. What plugins bring is in test_sources_plugins."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from rich.console import Console

from flare.errors import CheckpointError
from flare.prepare.progress import Progress
from flare.prepare.sources import resolve_checkpoint
from flare.recipes import LocalCheckpoint

QUIET = Progress(Console(quiet=True))


def resolve(uri: str, pin: str | None = None) -> LocalCheckpoint:
    return resolve_checkpoint(uri, pin=pin, progress=QUIET)


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=r"s3://bucket.*hf://.*pypi://.*a path"):
        resolve("s3://bucket/key")


def test_pins_must_agree() -> None:
    with pytest.raises(CheckpointError, match="a" * 64):
        resolve("x#sha256=" + "b" * 64, "a" * 64)


@pytest.mark.parametrize("fragment", ["#sha256=abc", "#sha256:" + "a" * 64, "#sha256=" + "A" * 64])
def test_a_malformed_pin_is_not_part_of_a_path(fragment: str) -> None:
    with pytest.raises(CheckpointError, match="64 lower-case hex digits"):
        resolve("x" + fragment)


def test_a_pinned_file(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"weights")
    pin = hashlib.sha256(b"weights").hexdigest()
    assert resolve(f"{file}#sha256={pin}").revision == pin
    file.write_bytes(b"Weights")
    with pytest.raises(CheckpointError, match=f"expected {pin}"):
        resolve(str(file), pin)
    with pytest.raises(CheckpointError, match="not a directory"):
        resolve(str(tmp_path), pin)


def test_a_path_is_made_absolute_and_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert resolve("here").path == tmp_path / "here"
    assert os.fspath(resolve("here")) == str(tmp_path / "here")
    with pytest.raises(CheckpointError, match="gone does not exist"):
        resolve("gone")


def test_local_revisions_follow_the_files(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    before = resolve(str(tmp_path)).revision
    assert resolve(str(tmp_path)).revision == before
    stamp = weights.stat().st_mtime_ns
    weights.write_bytes(b"two")
    os.utime(weights, ns=(stamp + 1, stamp + 1))
    assert resolve(str(tmp_path)).revision != before

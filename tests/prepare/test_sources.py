"""The choice of a source, pins, paths, and sources that plugins bring."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from flare.errors import CheckpointError
from flare.prepare.progress import Progress
from flare.prepare.sources import checkpoint_sources, resolve_checkpoint
from flare.recipes import CheckpointSource, LocalCheckpoint, ProgressReporter, Registry, discover, hookimpl

QUIET = Progress(Console(quiet=True))


@pytest.fixture
def registry() -> Registry:
    return discover([])


def resolve(registry: Registry, uri: str, pin: str | None = None) -> LocalCheckpoint:
    return resolve_checkpoint(uri, pin=pin, progress=QUIET, manager=registry.manager)


class Recording:
    scheme = "test"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    def resolve(self, uri: str, pin: str | None, progress: ProgressReporter) -> LocalCheckpoint:
        self.asked.append((uri, pin))
        return LocalCheckpoint(path=Path("/somewhere"), revision="r", uri=uri)


def provide(registry: Registry, source: CheckpointSource) -> None:
    @hookimpl
    def flare_checkpoint_sources() -> Sequence[CheckpointSource]:
        return [source]

    registry.manager.register(SimpleNamespace(flare_checkpoint_sources=flare_checkpoint_sources))


def test_built_in_sources_come_through_the_hook_once(registry: Registry) -> None:
    assert set(checkpoint_sources(registry.manager)) == {"hf", "pypi", ""}
    assert set(checkpoint_sources(registry.manager)) == {"hf", "pypi", ""}


def test_a_plugin_adds_a_scheme(registry: Registry) -> None:
    source = Recording()
    provide(registry, source)
    assert resolve(registry, "test://host/x#sha256=" + "a" * 64).path == Path("/somewhere")
    resolve(registry, "TEST://y", "b" * 64)
    assert source.asked == [("test://host/x", "a" * 64), ("TEST://y", "b" * 64)]


def test_two_sources_of_one_scheme(registry: Registry) -> None:
    source = Recording()
    source.scheme = "hf"
    provide(registry, source)
    with pytest.raises(CheckpointError, match="'hf'"):
        resolve(registry, "hf://a/b@main")


def test_an_unknown_scheme_lists_the_known_ones(registry: Registry) -> None:
    with pytest.raises(CheckpointError, match=r"s3://bucket.*hf://.*pypi://.*a path"):
        resolve(registry, "s3://bucket/key")


def test_pins_must_agree(registry: Registry) -> None:
    with pytest.raises(CheckpointError, match="a" * 64):
        resolve(registry, "x#sha256=" + "b" * 64, "a" * 64)


@pytest.mark.parametrize("fragment", ["#sha256=abc", "#sha256:" + "a" * 64, "#sha256=" + "A" * 64])
def test_a_malformed_pin_is_not_part_of_a_path(registry: Registry, fragment: str) -> None:
    with pytest.raises(CheckpointError, match="64 lower-case hex digits"):
        resolve(registry, "x" + fragment)


def test_a_pinned_file(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"weights")
    pin = hashlib.sha256(b"weights").hexdigest()
    assert resolve(registry, f"{file}#sha256={pin}").revision == pin
    file.write_bytes(b"Weights")
    with pytest.raises(CheckpointError, match=f"expected {pin}"):
        resolve(registry, str(file), pin)
    with pytest.raises(CheckpointError, match="not a directory"):
        resolve(registry, str(tmp_path), pin)


def test_a_path_is_made_absolute_and_must_exist(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert resolve(registry, "here").path == tmp_path / "here"
    assert os.fspath(resolve(registry, "here")) == str(tmp_path / "here")
    with pytest.raises(CheckpointError, match="gone does not exist"):
        resolve(registry, "gone")


def test_local_revisions_follow_the_files(registry: Registry, tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    before = resolve(registry, str(tmp_path)).revision
    assert resolve(registry, str(tmp_path)).revision == before
    stamp = weights.stat().st_mtime_ns
    weights.write_bytes(b"two")
    os.utime(weights, ns=(stamp + 1, stamp + 1))
    assert resolve(registry, str(tmp_path)).revision != before

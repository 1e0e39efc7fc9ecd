"""Socket directories of killed processes are removed by the next one, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flare.engine.socket_directory import SocketDirectory

CRASH = (
    "import os, sys, tempfile\nfrom flare.engine.socket_directory import SocketDirectory\n"
    "tempfile.tempdir = sys.argv[1]\nprint(SocketDirectory().path, flush=True)\nos.kill(os.getpid(), 9)\n"
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed(directory: Path) -> None:
    mine = SocketDirectory()
    crashed = subprocess.run(
        [sys.executable, "-c", CRASH, directory], capture_output=True, text=True, timeout=30
    )
    left = Path(crashed.stdout.strip())
    assert left.is_dir()
    foreign = directory / "flare-other"
    foreign.mkdir()

    another = SocketDirectory()

    assert sorted(directory.iterdir()) == sorted([mine.path, another.path, foreign])
    for one in (mine, another):
        one.remove()
        one.remove()
    assert list(directory.iterdir()) == [foreign]


def test_a_directory_that_is_being_made_is_left_alone(directory: Path) -> None:
    young, old = directory / "flare-engine-young", directory / "flare-engine-old"
    young.mkdir()
    old.mkdir()
    os.utime(old, (0, 0))

    SocketDirectory().remove()

    assert list(directory.iterdir()) == [young]

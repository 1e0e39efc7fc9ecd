"""The directory of downloaded checkpoints, and files that appear in it whole or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flare.recipes.source import ProgressReporter

CHUNK = 1 << 20


def cache_directory() -> Path:
    """`$FLARE_CACHE`, else `flare` below the user's cache directory (`$XDG_CACHE_HOME` or `~/.cache`)."""
    if explicit := os.environ.get("FLARE_CACHE"):
        return Path(explicit).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "flare"


@contextmanager
def publish(target: Path) -> Iterator[Path]:
    """Give a temporary path beside `target`; when the block ends without an exception, rename it to `target`.

    Readers see the old file or the complete new one, and two writers of the same content do not disturb
    each other.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as scratch:
        partial = Path(scratch) / target.name
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(target)


def sha256_of(path: Path, title: str, progress: ProgressReporter) -> str:
    """SHA-256 of a file as 64 hex digits, shown as a phase called `title`."""
    digest = hashlib.sha256()
    with progress.phase(title, path.stat().st_size) as phase, path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
            phase.advance(len(block))
    return digest.hexdigest()

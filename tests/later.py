"""An executor whose jobs run when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future


class Later(Executor):
    """Runs what was submitted one at a time, when asked."""

    def __init__(self) -> None:
        self._jobs: list[Callable[[], object]] = []

    def submit(self, fn, /, *args, **kwargs):
        self._jobs.append(lambda: fn(*args, **kwargs))
        return Future()

    def run_one(self) -> bool:
        if self._jobs:
            self._jobs.pop(0)()
            return True
        return False

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._jobs.clear()

"""Driver and context of a GPU, made by a thread of their own: both take a while and need nothing of a core.

A process that will load a core may `begin` before it has imported what loads it. Imports nothing large.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from flare.device.cuda.context import Context
from flare.device.cuda.driver import CudaDriver, Driver


class Opening:
    """The driver (made, unless there is one) and the primary context of GPU `ordinal`, on their way.

    `spans` says when each was made: begin and end by `time.perf_counter`, in seconds.
    """

    def __init__(self, ordinal: int = 0, driver: Driver | None = None) -> None:
        self.spans: dict[str, tuple[float, float]] = {}
        worker = ThreadPoolExecutor(1, thread_name_prefix="gpu")
        self._made = worker.submit(self._open, ordinal, driver)
        worker.shutdown(wait=False)

    def result(self) -> tuple[Driver, Context]:
        """Both, once they are there; the context is the caller's to close. Raises DeviceError."""
        return self._made.result()

    def _open(self, ordinal: int, driver: Driver | None) -> tuple[Driver, Context]:
        with self._timed("driver"):
            driver = driver or CudaDriver()
        with self._timed("context"):
            return driver, Context(driver, ordinal)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.spans[part] = began, time.perf_counter()


_begun: dict[int, Opening] = {}


def begin(ordinal: int = 0) -> None:
    """Start to open a GPU that this process will load a core onto."""
    if ordinal not in _begun:
        _begun[ordinal] = Opening(ordinal)


def opening(ordinal: int) -> Opening:
    """What was begun for a GPU, once; otherwise begins now."""
    return _begun.pop(ordinal, None) or Opening(ordinal)

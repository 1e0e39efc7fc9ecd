"""Host memory that the GPU reads and writes directly."""

from __future__ import annotations

import ctypes

import numpy as np

from flare.device.base import Bytes
from flare.device.cuda.driver import Driver


class PinnedBytes:
    """`nbytes` of page-locked host memory as `array` u8[nbytes], until `close`."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver = driver
        self.address = int(driver.call("cuMemHostAlloc", max(nbytes, 1), 0))
        block = (ctypes.c_uint8 * nbytes).from_address(self.address)
        self.array: Bytes = np.ctypeslib.as_array(block)

    def close(self) -> None:
        """Free. The array must not be used afterwards. Idempotent."""
        if self.address:
            self._driver.probe("cuMemFreeHost", self.address)
            self.address = 0
            self.array = np.empty(0, np.uint8)

"""The primary context of one GPU, and what a core must know of that GPU."""

from __future__ import annotations

from typing import Any

from flare.device.cuda.driver import Driver
from flare.device.cuda.nvml import GpuUsage

# CUdevice_attribute
_BUS_ID_CHARACTERS = 64
_MAJOR, _MINOR = "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"


class Context:
    """Retains the primary context of GPU `ordinal` and makes it current in this thread.

    `architecture` is like `sm_90`; `driver_version` is the newest CUDA of the driver, 13010 for 13.1.
    `nbytes` is what the context takes of the GPU's memory; where nobody can tell, what all contexts take.
    """

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self._driver = driver
        self.ordinal = ordinal
        self.device: Any = driver.call("cuDeviceGet", ordinal)
        bus = driver.call("cuDeviceGetPCIBusId", _BUS_ID_CHARACTERS, self.device).split(b"\0")[0].decode()
        with GpuUsage(bus) as usage:
            before = usage.used_bytes()
            self.handle: Any = driver.call("cuDevicePrimaryCtxRetain", self.device)
            self._held = True
            self.make_current()
            after = usage.used_bytes()
        free, total = self.memory
        self.nbytes = total - free if before is None or after is None else after - before
        self.architecture = f"sm_{self._attribute(_MAJOR)}{self._attribute(_MINOR)}"
        self.driver_version = int(driver.call("cuDriverGetVersion"))
        self.name: str = driver.call("cuDeviceGetName", 128, self.device).split(b"\0")[0].decode()

    def make_current(self) -> None:
        """Let this thread's driver calls work on this GPU."""
        self._driver.call("cuCtxSetCurrent", self.handle)

    @property
    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the GPU."""
        free, total = self._driver.call("cuMemGetInfo")
        return int(free), int(total)

    def close(self) -> None:
        """Give the context back. Idempotent."""
        if self._held:
            self._held = False
            self._driver.probe("cuDevicePrimaryCtxRelease", self.device)

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._driver.types.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._driver.call("cuDeviceGetAttribute", attribute, self.device))

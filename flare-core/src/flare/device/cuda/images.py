"""Kernel images in a serving process: each loaded once, however many graphs use it."""

from __future__ import annotations

from typing import Any

from flare.device.cuda.context import Context
from flare.device.cuda.driver import UNLOADABLE_IMAGE, CudaError, Driver
from flare.errors import DeviceError


class KernelImages:
    """Loaded images by digest."""

    def __init__(self, driver: Driver, context: Context) -> None:
        self._driver, self._context = driver, context
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._attributes: dict[tuple[str, str, int], int] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._modules

    def load(self, digest: str, image: bytes) -> None:
        """Load an image unless it is. Raises DeviceError when this GPU or driver cannot run it."""
        if digest in self._modules:
            return
        try:
            self._modules[digest] = self._driver.call("cuModuleLoadData", image)
        except CudaError as error:
            if error.status not in UNLOADABLE_IMAGE:
                raise
            raise DeviceError(
                f"kernel image {digest[:12]} does not load on {self._context.architecture} with a driver for "
                f"CUDA {self._context.driver_version} ({error.name}): update the driver, or prepare the core "
                "again on this machine",
                field=f"cubin/{digest}",
            ) from error

    def function(self, digest: str, name: str) -> Any:
        """CUfunction `name` of a loaded image. Raises CudaError when the image lacks it."""
        key = (digest, name)
        if key not in self._functions:
            module = self._modules[digest]
            self._functions[key] = self._driver.call("cuModuleGetFunction", module, name.encode())
        return self._functions[key]

    def require(self, digest: str, name: str, number: int, value: int, *, at_least: bool) -> None:
        """Give a loaded function CUfunction_attribute `number` = `value`, or no less. Thousands of nodes ask
        this of a few functions: the driver is asked once."""
        key = (digest, name, number)
        attribute = self._driver.types.CUfunction_attribute(number)
        if key not in self._attributes:
            have = self._driver.call("cuFuncGetAttribute", attribute, self.function(digest, name))
            self._attributes[key] = int(have)
        if value > self._attributes[key] if at_least else value != self._attributes[key]:
            self._driver.call("cuFuncSetAttribute", self.function(digest, name), attribute, value)
            self._attributes[key] = value

    def close(self) -> None:
        """Unload everything. Idempotent."""
        self._functions.clear()
        for module in self._modules.values():
            self._driver.probe("cuModuleUnload", module)
        self._modules.clear()

"""The CUDA driver API as calls that raise: the only module that touches cuda-bindings.

Imported lazily, so that everything else imports, and is tested, without a driver.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from typing import Any, Protocol

from flare.errors import DeviceError

OUT_OF_MEMORY = 2
UNLOADABLE_IMAGE = frozenset({200, 209, 218, 222, 223})
"""CUresult of an image for another architecture or a newer driver."""


class CudaError(DeviceError):
    """A driver call failed. `operation` is its name, `status` the CUresult, `name` the CUresult's name."""

    def __init__(self, operation: str, status: int, name: str, text: str) -> None:
        super().__init__(f"{operation} failed: {name} ({status}): {text}", field=operation)
        self.operation, self.status, self.name = operation, status, name


_TAKING = re.compile(
    r"cu(Mem(AddressReserve|Create|Map|Alloc\w*|HostAlloc|HostRegister)|ModuleLoad\w*|LibraryLoad\w*|Link\w+"
    r"|Graph(Create|Clone|Add\w+|Instantiate\w*)|Stream(Create\w*|BeginCapture\w*)|EventCreate\w*|CtxCreate\w*)"
)


class ResourceCalls:
    """Counts, by operation, the calls that take memory or addresses, load kernels, build graphs or make
    streams and events: `loading` until `settle`, `serving` from then on."""

    def __init__(self) -> None:
        self.loading: Counter[str] = Counter()
        self.serving: Counter[str] = Counter()
        self._current = self.loading
        self._taking: dict[str, bool] = {}

    def settle(self) -> None:
        """Everything is there: further calls are `serving` ones."""
        self._current = self.serving

    def note(self, operation: str) -> None:
        """An operation is called."""
        taking = self._taking.get(operation)
        if taking is None:
            taking = self._taking[operation] = _TAKING.fullmatch(operation) is not None
        if taking:
            self._current[operation] += 1


class Driver(Protocol):
    """Driver functions, structures and enumerations by their names in the driver API."""

    types: Any
    """Where structures and enumerations are found as attributes."""
    resources: ResourceCalls
    """Every call through this driver is noted."""

    def call(self, operation: str, *arguments: Any) -> Any:
        """Results of a function: None, one value or a tuple. Raises CudaError."""

    def probe(self, operation: str, *arguments: Any) -> tuple[int, Any]:
        """CUresult and results, for calls whose failure is an answer."""


class CudaDriver:
    """The driver of this machine, initialised. Raises DeviceError when there is none."""

    def __init__(self) -> None:
        self.resources = ResourceCalls()
        try:
            self.types: Any = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise DeviceError(
                "a CUDA core needs cuda-bindings: pip install 'flare-core[cuda]'", field="cuda-bindings"
            ) from error
        try:
            self.call("cuInit", 0)
        except RuntimeError as error:  # cuda-bindings found no libcuda
            raise DeviceError(f"no NVIDIA driver on this machine: {error}", field="driver") from error

    def call(self, operation: str, *arguments: Any) -> Any:
        """See `Driver.call`."""
        status, result = self.probe(operation, *arguments)
        if status:
            raise CudaError(operation, status, *self._describe(status))
        return result

    def probe(self, operation: str, *arguments: Any) -> tuple[int, Any]:
        """See `Driver.probe`."""
        self.resources.note(operation)
        status, *results = getattr(self.types, operation)(*arguments)
        if not results:
            return int(status), None
        return int(status), results[0] if len(results) == 1 else tuple(results)

    def _describe(self, status: int) -> tuple[str, str]:
        texts = []
        for function in (self.types.cuGetErrorName, self.types.cuGetErrorString):
            found, text = function(self.types.CUresult(status))
            texts.append(text.decode() if not int(found) and text else "unknown")
        return texts[0], texts[1]

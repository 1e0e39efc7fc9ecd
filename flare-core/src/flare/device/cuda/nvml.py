"""Memory in use on a GPU as the management library sees it, which needs no context and counts all of them."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, Self


class _Memory(ctypes.Structure):
    """nvmlMemory_t"""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuUsage:
    """The GPU at a PCI address (`0000:19:00.0`), as a context manager."""

    def __init__(self, bus_id: str) -> None:
        self._bus_id = bus_id
        self._library: Any = None

    def __enter__(self) -> Self:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return self
        if not library.nvmlInit_v2():
            self._library = library
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._library is not None:
            self._library.nvmlShutdown()

    def used_bytes(self) -> int | None:
        """Bytes in use, by all processes and the driver. None where the library is absent or does not say, as
        on GPUs without memory of their own."""
        if self._library is None:
            return None
        handle, memory = ctypes.c_void_p(), _Memory()
        if self._library.nvmlDeviceGetHandleByPciBusId_v2(self._bus_id.encode(), ctypes.byref(handle)):
            return None
        if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            return None
        return int(memory.used)

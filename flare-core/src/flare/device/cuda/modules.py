"""Every kernel image of the preparing process, and which of them a captured kernel comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Set
from typing import Any

from flare.device.cuda.cupti import ImageEvents
from flare.device.cuda.driver import Driver
from flare.device.cuda.elf import function_names
from flare.errors import DeviceError


class ModuleRegistry:
    """Images by digest (SHA-256, hexadecimal), by the functions they hold and by the handle they got.

    Names alone do not tell: two specialisations of one Triton kernel have the same name.
    """

    def __init__(self) -> None:
        self.images: dict[str, bytes] = {}
        self._by_name: dict[str, list[str]] = {}
        self._by_handle: dict[int, str] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._events: ImageEvents | None = None

    def watch(self) -> None:
        """Collect from now on. Raises DeviceError without CUPTI."""
        self._events = ImageEvents(self.add, self.bind)

    def close(self) -> None:
        """Collect nothing more; what was collected stays."""
        if self._events is not None:
            self._events.close()

    def add(self, image: bytes) -> str:
        """Remember an image; returns its digest."""
        digest = hashlib.sha256(image).hexdigest()
        if digest not in self.images:
            self.images[digest] = image
            self._names[digest] = function_names(image)
            for name in self._names[digest]:
                self._by_name.setdefault(name, []).append(digest)
        return digest

    def bind(self, handle: int, image: bytes) -> None:
        """Remember an image under the CUmodule or CUlibrary that holds it now."""
        self._by_handle[handle] = self.add(image)

    def find(self, function: str, handles: Set[int], siblings: Callable[[], Set[str]]) -> str:
        """Digest of the image of `function`, given its module's possible handles and, asked only when the
        name is ambiguous, the names of all functions in its module (empty: the driver does not say).

        Raises DeviceError when no image or several different ones qualify.
        """
        if self._events is not None and self._events.error is not None:
            raise DeviceError(f"kernel images were lost: {self._events.error}") from self._events.error
        for handle in handles:
            digest = self._by_handle.get(handle)
            if digest is not None and function in self._names[digest]:
                return digest
        found = self._by_name.get(function, [])
        if len(found) > 1:
            found = self._closest(found, siblings())
        if len(found) == 1:
            return found[0]
        what = f"{len(found)} different images qualify" if found else "no image was seen"
        raise DeviceError(
            f"kernel {function}: {what}; collect images before the first kernel of the process is loaded",
            field=function,
        )

    def _closest(self, digests: list[str], siblings: Set[str]) -> list[str]:
        holding = [digest for digest in digests if siblings <= self._names[digest]]
        if not siblings or not holding:
            return holding
        fewest = min(len(self._names[digest]) for digest in holding)
        return [digest for digest in holding if len(self._names[digest]) == fewest]


def module_handles(driver: Driver, function: Any, kernel: Any) -> Set[int]:
    """Handles of the module and the library that a captured kernel may have come from."""
    handles: set[int] = set()
    if int(kernel):
        status, library = driver.probe("cuKernelGetLibrary", kernel)
        if not status:
            handles.add(int(library))
    status, module = driver.probe("cuFuncGetModule", function)
    if not status:
        handles.add(int(module))
    return handles


def sibling_names(driver: Driver, function: Any) -> Set[str]:
    """Names of all functions in the module of a captured kernel; empty when the driver does not say."""
    status, module = driver.probe("cuFuncGetModule", function)
    count = 0 if status else driver.probe("cuModuleGetFunctionCount", module)[1]
    if not count:
        return set()
    status, listed = driver.probe("cuModuleEnumerateFunctions", count, module)
    names: set[str] = set()
    for sibling in () if status else listed:
        status, name = driver.probe("cuFuncGetName", sibling)
        if not status:
            names.add(name.decode())
    return names

"""CUPTI callbacks that hand over every kernel image the process loads. For preparation.

Constants and structures: `cupti_callbacks.h`, `cupti_driver_cbid.h` and `generated_cuda_meta.h` of CUPTI 13.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flare.device.cuda.elf import MAGIC, image_bytes
from flare.errors import DeviceError

_DRIVER_API, _RESOURCE = 1, 3  # CUpti_CallbackDomain
_MODULE_LOADED = 6  # CUpti_CallbackIdResource
_API_EXIT = 1
_MEMORY_LOADS = (19, 20, 678)  # cuModuleLoadData, cuModuleLoadDataEx, cuLibraryLoadData
_FILE_LOADS = (18, 679)  # cuModuleLoad, cuLibraryLoadFromFile
_OK = 0


class _ModuleData(ctypes.Structure):
    _fields_ = [
        ("module_id", ctypes.c_uint32),
        ("cubin_bytes", ctypes.c_size_t),
        ("cubin", ctypes.c_void_p),
    ]


class _ResourceData(ctypes.Structure):
    _fields_ = [
        ("context", ctypes.c_void_p),
        ("resource", ctypes.c_void_p),
        ("descriptor", ctypes.c_void_p),
    ]


class _CallData(ctypes.Structure):
    _fields_ = [
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("result", ctypes.POINTER(ctypes.c_int)),
    ]


class _LoadParameters(ctypes.Structure):
    """The leading parameters of all load functions: `source` is an image or the name of its file."""

    _fields_ = [("handle", ctypes.POINTER(ctypes.c_void_p)), ("source", ctypes.c_void_p)]


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class ImageEvents:
    """Subscribes to image loads until `close`. Begin before the context exists.

    `on_image(image)` gets every cubin that becomes resident, lazily loaded ones too. `on_load(handle, image)`
    gets the CUmodule or CUlibrary of every cubin that was loaded by itself, from memory or a file. Both run
    inside driver calls and must not call the driver. `error` is the first exception of either.

    Raises DeviceError when CUPTI is missing or another tool (a profiler) holds it.
    """

    def __init__(self, on_image: Callable[[bytes], object], on_load: Callable[[int, bytes], object]) -> None:
        self._on_image, self._on_load = on_image, on_load
        self.error: Exception | None = None
        self._library = _find()
        self._callback = _Callback(self._receive)  # kept: CUPTI holds only its address
        self._subscriber = ctypes.c_void_p()
        self._check("cuptiSubscribe", ctypes.byref(self._subscriber), self._callback, None)
        for domain, event in (
            (_RESOURCE, _MODULE_LOADED),
            *((_DRIVER_API, load) for load in (*_MEMORY_LOADS, *_FILE_LOADS)),
        ):
            self._check(
                "cuptiEnableCallback", ctypes.c_uint32(1), self._subscriber, domain, ctypes.c_uint32(event)
            )

    def close(self) -> None:
        """Receive nothing more. Idempotent."""
        if self._subscriber:
            self._library.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != _OK:
            raise DeviceError(
                f"{function} failed with CUptiResult {status}: a profiler may be attached to this process",
                field="cupti",
            )

    def _receive(self, _: Any, domain: int, event: int, data: int) -> None:
        try:
            if domain == _RESOURCE:
                descriptor = _ResourceData.from_address(data).descriptor
                module = _ModuleData.from_address(descriptor)
                self._on_image(ctypes.string_at(module.cubin, module.cubin_bytes))
            else:
                self._loaded(event, _CallData.from_address(data))
        except Exception as error:  # an exception would be lost on its way through C
            self.error = self.error or error

    def _loaded(self, event: int, call: _CallData) -> None:
        if call.site != _API_EXIT or call.result.contents.value != _OK:
            return
        parameters = _LoadParameters.from_address(call.parameters)
        source = parameters.source
        if event in _FILE_LOADS:
            image = Path(os.fsdecode(ctypes.string_at(source))).read_bytes()
        else:
            nbytes = image_bytes(lambda offset, length: ctypes.string_at(source + offset, length))
            image = ctypes.string_at(source, nbytes) if nbytes is not None else b""
        if image[:4] == MAGIC:  # a bundle of several images has no handle of its own for each
            self._on_load(parameters.handle.contents.value, image)


def _find() -> Any:
    tried = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(str(error))
    raise DeviceError(f"CUPTI is not here: pip install nvidia-cuda-cupti ({'; '.join(tried)})", field="cupti")


def _candidates() -> Iterator[str]:
    yield "libcupti.so.13"  # the one that torch has loaded
    package = importlib.util.find_spec("nvidia")
    for location in (package.submodule_search_locations or ()) if package else ():
        yield from map(str, sorted(Path(location).glob("*/lib/libcupti.so.13")))
    yield "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"

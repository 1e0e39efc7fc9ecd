"""A driver without a GPU: its memory is real enough to copy and fill; kernel launches are recorded."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from flare.device.cuda.driver import CudaError, ResourceCalls

GRANULE = 2 << 20
NOT_READY, INVALID = 600, 1


class Struct:
    """Any structure of the driver API: fields appear when they are first named."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = Struct()
        setattr(self, name, value)
        return value


class _Type:
    def __call__(self, *value: Any) -> Any:
        return value[0] if value else Struct()

    def __getattr__(self, name: str) -> str:
        return name


class _Types:
    def __getattr__(self, name: str) -> _Type:
        return _Type()


@dataclass(frozen=True)
class _Retained:
    """The memory that is mapped at an address."""

    address: int


class FakeDriver:
    """Runs everything at once, unless `busy`. `taken` are addresses somebody else has reserved; `free` the
    bytes left on the GPU of `total`; `fail` makes an operation fail with a CUresult."""

    def __init__(
        self,
        *,
        taken: tuple[int, ...] = (),
        free: int = 1 << 40,
        total: int = 1 << 40,
        capability: tuple[int, int] = (9, 0),
    ) -> None:
        self.types: Any = _Types()
        self.resources = ResourceCalls()
        self._lock = threading.Lock()
        self.taken, self.free, self.total, self.capability = taken, free, total, capability
        self.version = 13000
        self.busy = False
        self.fail: dict[str, int] = {}
        self.count: Counter[str] = Counter()
        self.mapped: dict[int, int] = {}
        self._memory: dict[int, bytearray] = {}
        self._origins: dict[int, int] = {}
        self.kernels: list[Any] = []
        self.edges: list[tuple[Any, ...]] = []
        self._handles = iter(range(1000, 1 << 30))
        self._pinned: dict[int, Any] = {}
        self._graphs: dict[int, list[Any]] = {}

    def call(self, operation: str, *arguments: Any) -> Any:
        status, result = self.probe(operation, *arguments)
        if status:
            raise CudaError(operation, status, f"CUDA_ERROR_{status}", "as told")
        return result

    def probe(self, operation: str, *arguments: Any) -> tuple[int, Any]:
        with self._lock:
            self.count[operation] += 1
        self.resources.note(operation)
        if operation in self.fail:
            return self.fail[operation], None
        method = getattr(self, f"_{operation}", None)
        if method is None:
            return 0, next(self._handles)
        result = method(*arguments)
        return result if isinstance(result, tuple) and operation in _ANSWERS else (0, result)

    # Addresses and memory.

    def _cuMemGetAllocationGranularity(self, *_: Any) -> int:
        return GRANULE

    def _cuMemAddressReserve(self, nbytes: int, alignment: int, wanted: int, flags: int) -> int:
        return 0x7000_0000_0000 if not wanted or wanted in self.taken else wanted

    def _cuMemCreate(self, nbytes: int, prop: Any, flags: int) -> tuple[int, Any]:
        if nbytes > self.free:
            return 2, None
        self.free -= nbytes
        return 0, nbytes

    def _cuMemRetainAllocationHandle(self, address: int) -> _Retained:
        return _Retained(address)

    def _cuMemMap(self, address: int, nbytes: int, offset: int, handle: Any, flags: int) -> None:
        self.mapped[address] = nbytes
        if isinstance(handle, _Retained):
            self._origins[address] = handle.address
            return
        # Neighbouring mappings are one piece of memory to whoever uses their addresses.
        for start, memory in self._memory.items():
            if start + len(memory) == address:
                memory.extend(bytes(nbytes))
                return
        self._memory[address] = bytearray(nbytes)

    def _cuMemUnmap(self, address: int, nbytes: int) -> None:
        del self.mapped[address]
        origin = self._origins.pop(address, address)
        if origin not in self.mapped and origin not in self._origins.values():
            self.free += nbytes
        if not self.mapped:
            self._memory.clear()

    def _cuMemGetInfo(self) -> list[int]:
        return [self.free, self.total]

    def window(self, address: int, nbytes: int) -> memoryview:
        for alias, origin in self._origins.items():
            if alias <= address < alias + self.mapped[alias]:
                address += origin - alias
                break
        for start, memory in self._memory.items():
            if start <= address and address + nbytes <= start + len(memory):
                return memoryview(memory)[address - start : address - start + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address:#x} are not mapped")

    def _cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        block = (ctypes.c_uint8 * nbytes)()
        self._pinned[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def _cuMemHostRegister(self, address: int, nbytes: int, flags: int) -> None:
        self._pinned[address] = None

    def _cuMemHostUnregister(self, address: int) -> None:
        del self._pinned[address]

    def _cuMemFreeHost(self, address: int) -> None:
        del self._pinned[address]

    @property
    def pinned(self) -> int:
        return len(self._pinned)

    def _cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: Any = None) -> None:
        self.window(target, nbytes)[:] = ctypes.string_at(source, nbytes)

    def _cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: Any = None) -> None:
        ctypes.memmove(target, bytes(self.window(source, nbytes)), nbytes)

    _cuMemcpyHtoD, _cuMemcpyDtoH = _cuMemcpyHtoDAsync, _cuMemcpyDtoHAsync

    def _cuMemsetD8Async(self, target: int, value: int, nbytes: int, stream: Any) -> None:
        self.window(target, nbytes)[:] = bytes([value]) * nbytes

    # The machine.

    def _cuDeviceGetAttribute(self, name: str, device: Any) -> int:
        return self.capability[name.endswith("MINOR")]

    def _cuDeviceGetPCIBusId(self, length: int, device: Any) -> bytes:
        return b"fake:00\0\0"

    def _cuDriverGetVersion(self) -> int:
        return self.version

    def _cuDeviceGetName(self, length: int, device: Any) -> bytes:
        return b"a fake\0\0"

    def _cuEventQuery(self, event: Any) -> tuple[int, Any]:
        return (NOT_READY if self.busy else 0), None

    def _cuEventElapsedTime(self, began: Any, ended: Any) -> float:
        return 0.25

    # Graphs.

    def _cuGraphCreate(self, flags: int) -> int:
        graph = next(self._handles)
        self._graphs[graph] = []
        return graph

    def _cuFuncGetAttribute(self, attribute: Any, function: Any) -> int:
        return 0

    def _cuGraphAddKernelNode(self, graph: int, before: Any, count: int, launch: Any) -> Any:
        self.kernels.append(launch)
        launch.values = []
        if isinstance(launch.kernelParams, int):  # pointers to values of 8 bytes
            for index in range(int(launch.count) if isinstance(launch.count, int) else 1):
                address = ctypes.c_void_p.from_address(launch.kernelParams + 8 * index).value
                launch.values.append(ctypes.string_at(address, 8) if address else b"")
        return launch

    def _cuGraphAddMemcpyNode(self, graph: int, before: Any, count: int, copy: Any, context: Any) -> Any:
        self._graphs[graph].append(copy)
        return copy

    def _cuGraphAddMemsetNode(self, graph: int, before: Any, count: int, fill: Any, context: Any) -> Any:
        if not self._is_mapped(fill.dst):  # as the driver: an address without memory is an invalid value
            return INVALID, None
        self._graphs[graph].append(fill)
        return 0, fill

    def _is_mapped(self, address: int) -> bool:
        return any(start <= address < start + nbytes for start, nbytes in self.mapped.items())

    def _cuGraphAddDependencies(self, *call: Any) -> None:
        self.edges.append(call)

    def _cuGraphInstantiate(self, graph: int, flags: int) -> list[Any]:
        return self._graphs[graph]

    def _cuGraphLaunch(self, nodes: list[Any], stream: Any) -> None:
        for node in nodes:
            if isinstance(node.WidthInBytes, int):
                source = bytes(self.window(node.srcDevice, node.WidthInBytes))
                self.window(node.dstDevice, node.WidthInBytes)[:] = source
            else:
                self.window(node.dst, node.width)[:] = bytes([node.value]) * node.width


_ANSWERS = {
    "cuMemCreate",
    "cuGraphAddMemsetNode",
    "cuEventQuery",
    "cuFuncGetParamInfo",
    "cuGraphKernelNodeGetAttribute",
}
"""Operations whose fake gives status and result."""

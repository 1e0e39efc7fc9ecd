"""Read a captured CUgraph through the driver: absolute addresses, nothing judged but node kinds."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flare.device.cuda.driver import Driver
from flare.device.cuda.graph_spec import Edge, Extent, LaunchAttributes
from flare.device.cuda.modules import ModuleRegistry, module_handles, sibling_names
from flare.errors import DeviceError

# CUfunction_attribute: maximum dynamic shared memory, carve-out, clusters above 8, cluster scheduling.
FUNCTION_ATTRIBUTES = (8, 9, 14, 15)
_DEVICE_MEMORY = ("CU_MEMORYTYPE_DEVICE", "CU_MEMORYTYPE_UNIFIED")
_PARAMETER_BUFFER, _PARAMETER_BYTES = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE


class GraphExportError(DeviceError):
    """A captured graph holds what a core cannot: the message names node and parameter."""


@dataclass(frozen=True, slots=True)
class CapturedKernel:
    """See `KernelNode`; `parameters` are raw bytes."""

    image: str
    function: str
    grid: Extent
    block: Extent
    shared_bytes: int
    parameters: tuple[bytes, ...]
    packed: bool = False
    attributes: LaunchAttributes = field(default_factory=LaunchAttributes)
    function_attributes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class CapturedSide:
    """One side of a copy at an absolute address."""

    address: int
    pitch: int
    height: int


@dataclass(frozen=True, slots=True)
class CapturedCopy:
    """See `CopyNode`."""

    source: CapturedSide
    destination: CapturedSide
    extent: Extent


@dataclass(frozen=True, slots=True)
class CapturedFill:
    """See `FillNode`; `destination` is absolute."""

    destination: int
    value: int
    element_bytes: int
    width: int
    rows: int
    pitch: int


@dataclass(frozen=True, slots=True)
class CapturedEmpty:
    """See `EmptyNode`."""


CapturedNode = CapturedKernel | CapturedCopy | CapturedFill | CapturedEmpty


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """Nodes in the driver's order, edges between their numbers, and the handle of a function of every kernel
    image."""

    nodes: tuple[CapturedNode, ...]
    edges: tuple[Edge, ...]
    functions: Mapping[str, int] = field(default_factory=dict)


def read_graph(driver: Driver, graph: int, registry: ModuleRegistry) -> CapturedGraph:
    """Describe the CUgraph `graph`, which is only read. Raises GraphExportError for nodes that no core can
    hold, and DeviceError for kernels whose image was not collected."""
    handle = driver.types.CUgraph(graph)
    _, count = driver.call("cuGraphGetNodes", handle, 0)
    nodes, _ = driver.call("cuGraphGetNodes", handle, count)
    numbers = {int(node): number for number, node in enumerate(nodes)}
    read = _NodeReader(driver, registry)
    described = tuple(read.node(number, node) for number, node in enumerate(nodes))
    return CapturedGraph(described, _edges(driver, handle, numbers), read.functions)


def _edges(driver: Driver, graph: Any, numbers: dict[int, int]) -> tuple[Edge, ...]:
    *_, count = driver.call("cuGraphGetEdges", graph, 0)
    if not count:
        return ()
    before, after, data, _ = driver.call("cuGraphGetEdges", graph, count)
    return tuple(
        Edge(numbers[int(a)], numbers[int(b)], d.from_port, d.to_port, bool(int(d.type)))
        for a, b, d in zip(before, after, data, strict=True)
    )


class _NodeReader:
    def __init__(self, driver: Driver, registry: ModuleRegistry) -> None:
        self._driver, self._registry = driver, registry
        self.functions: dict[str, int] = {}

    def node(self, number: int, node: Any) -> CapturedNode:
        kind = self._driver.call("cuGraphNodeGetType", node)
        name = kind.name.removeprefix("CU_GRAPH_NODE_TYPE_")
        match name:
            case "KERNEL":
                return self._kernel(number, node)
            case "MEMCPY":
                return self._copy(number, node)
            case "MEMSET":
                fill = self._driver.call("cuGraphMemsetNodeGetParams", node)
                return CapturedFill(
                    int(fill.dst), fill.value, fill.elementSize, fill.width, fill.height, fill.pitch
                )
            case "EMPTY":
                return CapturedEmpty()
        raise GraphExportError(
            f"node {number} is of kind {name}: a program holds kernels, device copies and fills only; keep "
            "host calls, events and allocations out of the capture",
            field=f"nodes.{number}",
        )

    def _kernel(self, number: int, node: Any) -> CapturedKernel:
        driver = self._driver
        launch = driver.call("cuGraphKernelNodeGetParams", node)
        function = launch.func
        if not int(function):
            function = driver.call("cuKernelGetFunction", launch.kern)
        name = driver.call("cuFuncGetName", function).decode()
        handles = module_handles(driver, function, launch.kern)
        packed = not launch.kernelParams and bool(launch.extra)
        if packed:
            parameters: tuple[bytes, ...] = (_packed_parameters(int(launch.extra)),)
        else:
            parameters = self._parameters(function, int(launch.kernelParams or 0))
        image = self._registry.find(name, handles, lambda: sibling_names(driver, function))
        self.functions[image] = int(function)  # the object ends with `launch`
        return CapturedKernel(
            image=image,
            function=name,
            grid=(launch.gridDimX, launch.gridDimY, launch.gridDimZ),
            block=(launch.blockDimX, launch.blockDimY, launch.blockDimZ),
            shared_bytes=launch.sharedMemBytes,
            parameters=parameters,
            packed=packed,
            attributes=self._attributes(number, name, node),
            function_attributes=self._function_attributes(function),
        )

    def _function_attributes(self, function: Any) -> tuple[tuple[int, int], ...]:
        found = []
        for number in FUNCTION_ATTRIBUTES:
            attribute = self._driver.types.CUfunction_attribute(number)
            status, value = self._driver.probe("cuFuncGetAttribute", attribute, function)
            if not status:  # an older architecture has no clusters
                found.append((number, int(value)))
        return tuple(found)

    def _parameters(self, function: Any, array: int) -> tuple[bytes, ...]:
        values: list[bytes] = []
        while True:
            # The call fails behind the last parameter; counting them needs a newer driver.
            status, layout = self._driver.probe("cuFuncGetParamInfo", function, len(values))
            if status:
                return tuple(values)
            address = ctypes.c_void_p.from_address(array + 8 * len(values)).value
            assert address is not None, "a kernel parameter without a value"
            values.append(ctypes.string_at(address, int(layout[1])))

    def _attributes(self, number: int, name: str, node: Any) -> LaunchAttributes:
        window = self._attribute(node, "ACCESS_POLICY_WINDOW")
        if window is not None and window.accessPolicyWindow.num_bytes:
            raise GraphExportError(
                f"node {number} ({name}) has an access policy window, which holds an address",
                field=f"nodes.{number}",
            )
        cluster = self._attribute(node, "CLUSTER_DIMENSION")
        preferred = self._attribute(node, "PREFERRED_CLUSTER_DIMENSION")
        policy = self._attribute(node, "CLUSTER_SCHEDULING_POLICY_PREFERENCE")
        cooperative = self._attribute(node, "COOPERATIVE")
        return LaunchAttributes(
            cluster=_extent(cluster.clusterDim) if cluster is not None else None,
            preferred_cluster=_extent(preferred.preferredClusterDim) if preferred is not None else None,
            cluster_policy=int(policy.clusterSchedulingPolicyPreference) if policy is not None else 0,
            cooperative=bool(cooperative.cooperative) if cooperative is not None else False,
        )

    def _attribute(self, node: Any, name: str) -> Any:
        key = getattr(self._driver.types.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        status, value = self._driver.probe("cuGraphKernelNodeGetAttribute", node, key)
        return None if status else value

    def _copy(self, number: int, node: Any) -> CapturedCopy:
        copy = self._driver.call("cuGraphMemcpyNodeGetParams", node)
        for side in (copy.srcMemoryType, copy.dstMemoryType):
            if side.name not in _DEVICE_MEMORY:
                raise GraphExportError(
                    f"node {number} copies {copy.srcMemoryType.name} to {copy.dstMemoryType.name}: a program "
                    "copies device memory only, the runtime moves uploads and completions",
                    field=f"nodes.{number}",
                )
        extent = (copy.WidthInBytes, max(copy.Height, 1), max(copy.Depth, 1))
        source = CapturedSide(int(copy.srcDevice) + _skipped(copy, "src"), copy.srcPitch, copy.srcHeight)
        destination = CapturedSide(int(copy.dstDevice) + _skipped(copy, "dst"), copy.dstPitch, copy.dstHeight)
        return CapturedCopy(source, destination, extent)


def _skipped(copy: Any, side: str) -> int:
    """Bytes from the start of one side of a copy to its first byte."""
    x, y, z, pitch, height = (
        int(getattr(copy, side + name)) for name in ("XInBytes", "Y", "Z", "Pitch", "Height")
    )
    return x + (y + z * height) * pitch


def _packed_parameters(extra: int) -> bytes:
    """The buffer of a launch's `extra`: pairs of a key and a value, ended by 0."""
    address = nbytes = 0

    def word(index: int) -> int:
        return ctypes.c_void_p.from_address(extra + 8 * index).value or 0

    index = 0
    while key := word(index):
        if key == _PARAMETER_BUFFER:
            address = word(index + 1)
        elif key == _PARAMETER_BYTES:
            nbytes = ctypes.c_size_t.from_address(word(index + 1)).value
        index += 2
    return ctypes.string_at(address, nbytes) if nbytes else b""


def _extent(dimension: Any) -> Extent | None:
    extent = (int(dimension.x), int(dimension.y), int(dimension.z))
    return extent if any(extent) else None

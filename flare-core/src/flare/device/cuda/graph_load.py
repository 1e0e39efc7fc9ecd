"""Rebuild a described graph from the driver alone, with every address as it is in this process."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from flare.device.cuda.address_book import AddressBook
from flare.device.cuda.context import Context
from flare.device.cuda.driver import Driver
from flare.device.cuda.graph_spec import (
    CopyNode,
    Edge,
    EmptyNode,
    FillNode,
    GraphSpec,
    KernelNode,
    LaunchAttributes,
    Node,
    Parameter,
    Pitched,
)
from flare.device.cuda.images import KernelImages
from flare.errors import CoreError, DeviceError

_WORD = struct.Struct("<Q")
_ALIGNMENT = 16  # bytes, of a parameter's copy
_MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute
_PARAMETER_BUFFER, _PARAMETER_BYTES = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE


class LoadedGraph:
    """An executable graph."""

    def __init__(self, driver: Driver, executable: Any) -> None:
        self._driver, self._executable = driver, executable

    def launch(self, stream: Any) -> None:
        """Enqueue one run."""
        self._driver.call("cuGraphLaunch", self._executable, stream)

    def close(self) -> None:
        """Destroy. Idempotent."""
        if self._executable is not None:
            self._driver.probe("cuGraphExecDestroy", self._executable)
            self._executable = None


def check_machine(spec: GraphSpec, context: Context) -> None:
    """Raise DeviceError when this GPU or its driver cannot run the graph."""
    if spec.architecture != context.architecture:
        raise DeviceError(
            f"the core is for {spec.architecture}, this GPU ({context.name}) is {context.architecture}: "
            "prepare a core on this machine",
            field="identity.device",
        )
    if context.driver_version // 1000 < spec.driver_version // 1000:
        raise DeviceError(
            f"the core needs a driver for CUDA {spec.driver_version // 1000}, this one is for "
            f"{context.driver_version // 1000}.{context.driver_version % 1000 // 10}: update the driver",
            field="driver",
        )


class BuiltGraph:
    """A graph that is built and not yet executable."""

    def __init__(self, driver: Driver, graph: Any) -> None:
        self._driver, self._graph = driver, graph

    def instantiate(self, stream: Any) -> LoadedGraph:
        """Make it executable and put it where `stream` runs it; once. Any thread may."""
        try:
            loaded = LoadedGraph(self._driver, self._driver.call("cuGraphInstantiate", self._graph, 0))
        finally:
            self._driver.probe("cuGraphDestroy", self._graph)
        self._driver.call("cuGraphUpload", loaded._executable, stream)
        return loaded


def build_graph(
    driver: Driver, context: Context, spec: GraphSpec, book: AddressBook, images: KernelImages
) -> BuiltGraph:
    """Build `spec`, whose images are loaded, with the addresses of `book`.

    Raises DeviceError for addresses other than the recorded ones in a graph that is not relocatable, and
    CoreError for one whose pointers lie outside their parameters.
    """
    graph = driver.call("cuGraphCreate", 0)
    try:
        build = _Builder(driver, context, graph, spec, book, images)
        nodes = [build.node(number, node) for number, node in enumerate(spec.nodes)]
        _connect(driver, graph, nodes, spec.edges)
    except BaseException:
        driver.probe("cuGraphDestroy", graph)
        raise
    return BuiltGraph(driver, graph)


def _connect(driver: Driver, graph: Any, nodes: Sequence[Any], edges: Sequence[Edge]) -> None:
    """Add full edges at once, others one by one: in a call for several the driver (580) gives every edge the
    data of the first, and a full edge that becomes a programmatic one is a race."""
    plain = [edge for edge in edges if not (edge.programmatic or edge.from_port or edge.to_port)]
    others = [[edge] for edge in edges if edge.programmatic or edge.from_port or edge.to_port]
    for alike in filter(None, (plain, *others)):
        data = driver.types.CUgraphEdgeData()
        data.from_port, data.to_port = alike[0].from_port, alike[0].to_port
        data.type = driver.types.CUgraphDependencyType(int(alike[0].programmatic))
        before, after = [nodes[edge.before] for edge in alike], [nodes[edge.after] for edge in alike]
        driver.call("cuGraphAddDependencies", graph, before, after, [data] * len(alike), len(alike))


def patched(parameter: Parameter, book: AddressBook) -> bytes | bytearray:
    """A parameter's bytes with the addresses of `book`; its own where they are the recorded ones. Raises
    CoreError for a pointer outside of it."""
    data: bytes | bytearray = parameter.data
    for pointer in parameter.pointers:
        if not 0 <= pointer.at <= len(data) - _WORD.size:
            raise CoreError(f"a pointer at byte {pointer.at} of a parameter of {len(data)}", field="nodes")
        address = book.absolute(pointer.target)
        if _WORD.unpack_from(data, pointer.at)[0] == address:
            continue
        if isinstance(data, bytes):
            data = bytearray(data)
        _WORD.pack_into(data, pointer.at, address)
    return data


class _Builder:
    def __init__(
        self,
        driver: Driver,
        context: Context,
        graph: Any,
        spec: GraphSpec,
        book: AddressBook,
        images: KernelImages,
    ) -> None:
        self._driver, self._context, self._graph = driver, context, graph
        self._spec, self._book, self._images = spec, book, images

    def node(self, number: int, node: Node) -> Any:
        match node:
            case KernelNode():
                return self._kernel(number, node)
            case CopyNode():
                return self._copy(node)
            case FillNode():
                return self._fill(node)
            case EmptyNode():
                return self._driver.call("cuGraphAddEmptyNode", self._graph, [], 0)

    def _kernel(self, number: int, node: KernelNode) -> Any:
        function = self._images.function(node.image, node.function)
        for attribute, value in node.function_attributes:
            # Another node of the function may need more shared memory.
            at_least = attribute == _MAX_DYNAMIC_SHARED
            self._images.require(node.image, node.function, attribute, value, at_least=at_least)
        launch = self._driver.types.CUDA_KERNEL_NODE_PARAMS()
        launch.func = function
        launch.gridDimX, launch.gridDimY, launch.gridDimZ = node.grid
        launch.blockDimX, launch.blockDimY, launch.blockDimZ = node.block
        launch.sharedMemBytes = node.shared_bytes
        block, places = bytearray(), []
        for parameter in node.parameters:
            places.append(len(block))
            block += self._value(number, node, parameter)
            nbytes = len(block)
            block += bytes(-nbytes % _ALIGNMENT)
        # The driver copies parameters when the node is added; until then this owns the memory.
        memory = (ctypes.c_char * max(len(block), 1)).from_buffer(block or bytearray(1))
        base = ctypes.addressof(memory)
        if node.packed:
            size = ctypes.c_size_t(nbytes)
            extra = (ctypes.c_void_p * 5)(
                _PARAMETER_BUFFER, base, _PARAMETER_BYTES, ctypes.addressof(size), 0
            )
            launch.extra = ctypes.addressof(extra)
        else:
            array = (ctypes.c_void_p * max(len(places), 1))(*[base + place for place in places])
            launch.kernelParams = ctypes.addressof(array)
        made = self._driver.call("cuGraphAddKernelNode", self._graph, [], 0, launch)
        self._set_attributes(made, node.attributes)
        return made

    def _value(self, number: int, node: KernelNode, parameter: Parameter) -> bytes | bytearray:
        value = patched(parameter, self._book)
        if value is not parameter.data and not self._spec.relocatable:
            because = f" ({self._spec.immovable})" if self._spec.immovable else ""
            raise DeviceError(
                f"node {number} ({node.function}) has addresses of {self._spec.layout.base:#x} that must not "
                f"be moved{because}: load the core at that base, in a fresh process",
                field="layout.base",
            )
        return value

    def _set_attributes(self, made: Any, attributes: LaunchAttributes) -> None:
        types = self._driver.types

        def put(name: str, value: Any) -> None:
            key = getattr(types.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
            self._driver.call("cuGraphKernelNodeSetAttribute", made, key, value)

        if attributes.cooperative:
            value = types.CUkernelNodeAttrValue()
            value.cooperative = 1
            put("COOPERATIVE", value)
        if attributes.cluster is not None:
            value = types.CUkernelNodeAttrValue()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = attributes.cluster
            put("CLUSTER_DIMENSION", value)
        if attributes.preferred_cluster is not None:
            value = types.CUkernelNodeAttrValue()
            extent = value.preferredClusterDim
            extent.x, extent.y, extent.z = attributes.preferred_cluster
            put("PREFERRED_CLUSTER_DIMENSION", value)
        if attributes.cluster_policy:
            value = types.CUkernelNodeAttrValue()
            policy = types.CUclusterSchedulingPolicy(attributes.cluster_policy)
            value.clusterSchedulingPolicyPreference = policy
            put("CLUSTER_SCHEDULING_POLICY_PREFERENCE", value)

    def _copy(self, node: CopyNode) -> Any:
        copy = self._driver.types.CUDA_MEMCPY3D()
        device = self._driver.types.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcMemoryType = copy.dstMemoryType = device
        copy.srcDevice, copy.srcPitch, copy.srcHeight = self._side(node.source)
        copy.dstDevice, copy.dstPitch, copy.dstHeight = self._side(node.destination)
        copy.WidthInBytes, copy.Height, copy.Depth = node.extent
        return self._driver.call("cuGraphAddMemcpyNode", self._graph, [], 0, copy, self._context.handle)

    def _side(self, side: Pitched) -> tuple[int, int, int]:
        return self._book.absolute(side.address), side.pitch, side.height

    def _fill(self, node: FillNode) -> Any:
        fill = self._driver.types.CUDA_MEMSET_NODE_PARAMS()
        fill.dst = self._book.absolute(node.destination)
        fill.value, fill.elementSize, fill.pitch = node.value, node.element_bytes, node.pitch
        fill.width, fill.height = node.width, node.rows
        return self._driver.call("cuGraphAddMemsetNode", self._graph, [], 0, fill, self._context.handle)

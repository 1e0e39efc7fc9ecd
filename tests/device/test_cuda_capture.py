"""What is read from a captured graph, over a fake driver that holds one."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_fake import FakeDriver, Struct
from kernel_image import kernel_image

from flare.device.cuda.captured import CapturedEmpty, CapturedKernel, GraphExportError, read_graph
from flare.device.cuda.graph_spec import Edge, LaunchAttributes
from flare.device.cuda.layout import plan_layout
from flare.device.cuda.module_variables import addresses_in_variables, check_variables
from flare.device.cuda.modules import ModuleRegistry
from flare.errors import DeviceError

IMAGE = kernel_image(["sum_rows"], code=b"\1")
SIZES = (8, 4, 24)  # parameter bytes of sum_rows


class CapturedDriver(FakeDriver):
    """Holds one graph of `nodes`: (kind, parameters)."""

    def __init__(self, *nodes: tuple[str, Any], edges: tuple[tuple[int, int, int], ...] = ()) -> None:
        super().__init__()
        self.nodes, self.edges = nodes, edges
        self.attributes: dict[str, Any] = {}

    def _cuGraphGetNodes(self, graph: Any, count: int) -> Any:
        return list(range(len(self.nodes)))[:count], len(self.nodes)

    def _cuGraphGetEdges(self, graph: Any, count: int) -> Any:
        before, after, kinds = zip(*self.edges, strict=True) if count else ((), (), ())
        data = [SimpleNamespace(from_port=kind, to_port=0, type=kind) for kind in kinds]
        return list(before), list(after), data, len(self.edges)

    def _cuGraphNodeGetType(self, node: int) -> Any:
        return SimpleNamespace(name=f"CU_GRAPH_NODE_TYPE_{self.nodes[node][0]}")

    def _parameters(self, node: int) -> Any:
        return self.nodes[node][1]

    _cuGraphKernelNodeGetParams = _cuGraphMemcpyNodeGetParams = _parameters

    def _cuFuncGetName(self, function: Any) -> bytes:
        return b"sum_rows"

    def _cuFuncGetParamInfo(self, function: Any, index: int) -> Any:
        return (0, (8 * index, SIZES[index])) if index < len(SIZES) else (1, None)

    def _cuGraphKernelNodeGetAttribute(self, node: int, name: str) -> Any:
        name = name.removeprefix("CU_LAUNCH_ATTRIBUTE_")
        return (0, self.attributes[name]) if name in self.attributes else (1, None)


def launch(**changes: Any) -> Any:
    facts = dict.fromkeys(("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"), 2)
    facts |= {"func": 5, "kern": 0, "sharedMemBytes": 16, "kernelParams": 0, "extra": 0}
    return SimpleNamespace(**(facts | changes))


def registry() -> ModuleRegistry:
    made = ModuleRegistry()
    made.add(IMAGE)
    return made


def read(driver: FakeDriver) -> CapturedKernel:
    (node,) = read_graph(driver, 1, registry()).nodes
    assert isinstance(node, CapturedKernel)
    return node


VALUES = [bytes(range(size)) for size in SIZES]


def test_parameters_by_pointer() -> None:
    buffers = [ctypes.create_string_buffer(value, len(value)) for value in VALUES]
    array = (ctypes.c_void_p * 3)(*map(ctypes.addressof, buffers))
    node = read(CapturedDriver(("KERNEL", launch(kernelParams=ctypes.addressof(array)))))
    assert node.parameters == tuple(VALUES)
    assert not node.packed
    assert (node.grid, node.block, node.shared_bytes) == ((2, 2, 2), (2, 2, 2), 16)


def test_parameters_in_one_buffer() -> None:
    data = b"".join(VALUES)
    buffer, nbytes = ctypes.create_string_buffer(data, len(data)), ctypes.c_size_t(len(data))
    extra = (ctypes.c_void_p * 5)(2, ctypes.addressof(nbytes), 1, ctypes.addressof(buffer), 0)
    node = read(CapturedDriver(("KERNEL", launch(extra=ctypes.addressof(extra)))))
    assert node.packed
    assert node.parameters == (data,)


def test_a_kernel_whose_image_was_not_seen() -> None:
    driver = CapturedDriver(("KERNEL", launch()))
    driver._cuFuncGetParamInfo = lambda function, index: (1, None)  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match="kernel sum_rows: no image was seen; collect images before"):
        read_graph(driver, 1, ModuleRegistry())


def test_launch_attributes() -> None:
    driver = CapturedDriver(("KERNEL", launch(kernelParams=0, extra=0)))
    driver._cuFuncGetParamInfo = lambda function, index: (1, None)  # type: ignore[method-assign]
    assert read(driver).attributes == LaunchAttributes()
    driver.attributes = {
        "CLUSTER_DIMENSION": SimpleNamespace(clusterDim=SimpleNamespace(x=2, y=1, z=1)),
        "PREFERRED_CLUSTER_DIMENSION": SimpleNamespace(preferredClusterDim=SimpleNamespace(x=0, y=0, z=0)),
        "COOPERATIVE": SimpleNamespace(cooperative=1),
    }
    assert read(driver).attributes == LaunchAttributes(cluster=(2, 1, 1), cooperative=True)
    driver.attributes = {"ACCESS_POLICY_WINDOW": SimpleNamespace(accessPolicyWindow=Struct())}
    driver.attributes["ACCESS_POLICY_WINDOW"].accessPolicyWindow.num_bytes = 4096
    with pytest.raises(GraphExportError, match=r"node 0 \(sum_rows\) has an access policy window"):
        read(driver)


def test_edges_keep_what_was_captured() -> None:
    nodes = (("EMPTY", None),) * 3
    graph = read_graph(CapturedDriver(*nodes, edges=((0, 1, 0), (1, 2, 1))), 1, registry())
    assert graph.nodes == (CapturedEmpty(),) * 3
    assert graph.edges == (Edge(0, 1), Edge(1, 2, 1, 0, True))


@pytest.mark.parametrize("kind", ["HOST", "MEM_ALLOC", "MEM_FREE", "EVENT_RECORD", "GRAPH", "CONDITIONAL"])
def test_nodes_that_no_core_can_hold(kind: str) -> None:
    with pytest.raises(GraphExportError, match=f"node 1 is of kind {kind}: a program holds kernels"):
        read_graph(CapturedDriver(("EMPTY", None), (kind, None)), 1, registry())


def side(name: str) -> Any:
    return SimpleNamespace(name=f"CU_MEMORYTYPE_{name}")


@pytest.mark.parametrize(("source", "target"), [("HOST", "DEVICE"), ("DEVICE", "HOST"), ("ARRAY", "DEVICE")])
def test_copies_of_other_memory(source: str, target: str) -> None:
    copy = SimpleNamespace(srcMemoryType=side(source), dstMemoryType=side(target))
    with pytest.raises(
        GraphExportError, match=f"node 0 copies CU_MEMORYTYPE_{source} to CU_MEMORYTYPE_{target}"
    ):
        read_graph(CapturedDriver(("MEMCPY", copy)), 1, registry())


def test_a_copy_that_begins_inside() -> None:
    copy = SimpleNamespace(srcMemoryType=side("UNIFIED"), dstMemoryType=side("DEVICE"))
    for name, value in {"XInBytes": 3, "Y": 2, "Z": 1, "Pitch": 100, "Height": 10, "Device": 1 << 40}.items():
        setattr(copy, f"src{name}", value)
        setattr(copy, f"dst{name}", 0)
    copy.WidthInBytes, copy.Height, copy.Depth = 16, 4, 0
    (node,) = read_graph(CapturedDriver(("MEMCPY", copy)), 1, registry()).nodes
    assert node.source.address == (1 << 40) + 3 + 200 + 1000  # type: ignore[union-attr]
    assert node.extent == (16, 4, 1)  # type: ignore[union-attr]


class DriverWithVariables(FakeDriver):
    """Gives out the variables of a module, `memory` by name; those it does not know are not given out."""

    def __init__(self, memory: dict[str, bytes]) -> None:
        super().__init__()
        self.kept = {name: ctypes.create_string_buffer(data, len(data)) for name, data in memory.items()}

    def probe(self, operation: str, *arguments: Any) -> tuple[int, Any]:
        if operation == "cuModuleGetGlobal":
            buffer = self.kept.get(arguments[1].decode())
            return (500, None) if buffer is None else (0, (ctypes.addressof(buffer), len(buffer)))
        if operation == "cuMemcpyDtoH":
            ctypes.memmove(*arguments)
            return 0, None
        return super().probe(operation, *arguments)


def test_addresses_in_variables_of_kernel_images() -> None:
    layout = plan_layout()
    inside, outside = layout.base + 4096, layout.base + layout.nbytes
    table = struct.pack("<4Q", outside, inside, layout.base - 1, 7) + b"tail"
    memory = {"table": table, "small": b"\1\0\0\0", "plain": struct.pack("<Q", 3)}
    sizes = {name: len(data) for name, data in memory.items()} | {"secret": 8}
    image = kernel_image(["sum_rows"], b"\1", sizes)
    driver = DriverWithVariables(memory)
    assert [*addresses_in_variables(driver, 5, image, layout)] == [("table", 8, inside)]
    message = f"variable table of kernel image dddddddddddd holds the address {inside:#x} at byte 8"
    with pytest.raises(GraphExportError, match=message):
        check_variables(driver, {"d" * 64: 5}, {"d" * 64: image}, layout)
    driver.fail = {"cuFuncGetModule": 1}
    assert [*addresses_in_variables(driver, 5, image, layout)] == []

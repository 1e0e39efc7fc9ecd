"""A captured graph in terms of named buffers: every address finds its buffer, or the export fails."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flare.device.cuda.address_book import Address, AddressBook
from flare.device.cuda.arena import Arena
from flare.device.cuda.captured import (
    CapturedCopy,
    CapturedEmpty,
    CapturedFill,
    CapturedGraph,
    CapturedKernel,
    CapturedNode,
    CapturedSide,
    GraphExportError,
    read_graph,
)
from flare.device.cuda.context import Context
from flare.device.cuda.driver import Driver
from flare.device.cuda.graph_spec import (
    VERSION,
    CopyNode,
    EmptyNode,
    Extent,
    FillNode,
    GraphSpec,
    KernelNode,
    Node,
    Parameter,
    Pitched,
    Pointer,
)
from flare.device.cuda.layout import ArenaLayout
from flare.device.cuda.module_variables import check_variables
from flare.device.cuda.modules import ModuleRegistry

__all__ = ["AddressSpace", "GraphExportError", "export_graph", "name_addresses"]

_WORD = struct.Struct("<Q")
_LOWEST_ADDRESS = 1 << 32  # the driver hands out nothing below, and small integers are no addresses


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """What is known about addresses: the arena's buffers and range, and whether the driver knows an address
    outside as anybody's memory."""

    book: AddressBook
    layout: ArenaLayout
    is_memory: Callable[[int], bool]


def export_graph(
    driver: Driver,
    context: Context,
    graph: int,
    arena: Arena,
    registry: ModuleRegistry,
    *,
    search_variables: bool = False,
) -> GraphSpec:
    """Describe the CUgraph `graph`, captured with all its memory in `arena`.

    Raises GraphExportError, naming node and parameter, for host, event, allocation and other nodes that a
    core cannot hold, for addresses outside named buffers and, with `search_variables`, for addresses in
    variables of kernel images; DeviceError for a kernel of unknown image.
    """

    def is_memory(address: int) -> bool:
        attribute = driver.types.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        return driver.probe("cuPointerGetAttribute", attribute, address)[0] == 0

    captured = read_graph(driver, graph, registry)
    if search_variables:
        check_variables(driver, captured.functions, registry.images, arena.layout)
    return GraphSpec(
        version=VERSION,
        architecture=context.architecture,
        driver_version=context.driver_version,
        layout=arena.layout,
        nodes=name_addresses(captured, AddressSpace(arena.book, arena.layout, is_memory)),
        edges=captured.edges,
    )


def name_addresses(captured: CapturedGraph, space: AddressSpace) -> tuple[Node, ...]:
    """All nodes by buffer name. Raises GraphExportError as `export_graph`."""
    return tuple(_named(node, number, space) for number, node in enumerate(captured.nodes))


def _named(node: CapturedNode, number: int, space: AddressSpace) -> Node:
    match node:
        case CapturedKernel():
            return KernelNode(
                image=node.image,
                function=node.function,
                grid=node.grid,
                block=node.block,
                shared_bytes=node.shared_bytes,
                parameters=_parameters(node, number, space),
                packed=node.packed,
                attributes=node.attributes,
                function_attributes=node.function_attributes,
            )
        case CapturedCopy():
            source, destination = (
                Pitched(_side(side, node.extent, number, space), side.pitch, side.height)
                for side in (node.source, node.destination)
            )
            return CopyNode(source, destination, node.extent)
        case CapturedFill():
            width = node.width * node.element_bytes
            nbytes = (node.rows - 1) * node.pitch + width if node.rows > 1 else width
            destination_address = _resolved(node.destination, nbytes, number, "destination", space)
            return FillNode(
                destination_address, node.value, node.element_bytes, node.width, node.rows, node.pitch
            )
        case CapturedEmpty():
            return EmptyNode()


def _parameters(node: CapturedKernel, number: int, space: AddressSpace) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(data, tuple(_pointers(data, f"node {number} ({node.function}) parameter {index}", space)))
        for index, data in enumerate(node.parameters)
    )


def _pointers(data: bytes, where: str, space: AddressSpace) -> Sequence[Pointer]:
    found = []
    for at in range(0, len(data) - _WORD.size + 1, _WORD.size):
        (value,) = _WORD.unpack_from(data, at)
        if value < _LOWEST_ADDRESS:
            continue
        address = space.book.resolve(value)
        if address is not None:
            found.append(Pointer(at, address.buffer, address.offset))
        elif space.layout.contains(value) or space.is_memory(value):
            raise GraphExportError(
                f"{where}, byte {at}: {value:#x} is memory outside all named buffers; allocate everything "
                "that a program sees from the arena, workspaces and random states too",
                field=where,
            )
    return found


def _side(side: CapturedSide, extent: Extent, number: int, space: AddressSpace) -> Address:
    width, rows, planes = extent
    nbytes = ((planes - 1) * side.height + rows - 1) * side.pitch + width
    return _resolved(side.address, nbytes, number, "copy", space)


def _resolved(value: int, nbytes: int, number: int, what: str, space: AddressSpace) -> Address:
    address = space.book.resolve(value, nbytes)
    if address is None:
        raise GraphExportError(
            f"node {number}, {what}: {nbytes} bytes at {value:#x} lie outside all named buffers",
            field=f"nodes.{number}",
        )
    return address

"""Graphs by buffer name: pointers found, refused, confirmed and patched; kernel images told apart."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cuda_fake import FakeDriver
from kernel_image import kernel_image

from flare.device.cuda.address_book import Address, AddressBook
from flare.device.cuda.captured import (
    CapturedCopy,
    CapturedFill,
    CapturedGraph,
    CapturedKernel,
    CapturedNode,
    CapturedSide,
    GraphExportError,
)
from flare.device.cuda.elf import function_names, image_bytes, variables
from flare.device.cuda.graph_compare import confirm_relocation
from flare.device.cuda.graph_export import AddressSpace, name_addresses
from flare.device.cuda.graph_load import patched
from flare.device.cuda.graph_spec import (
    VERSION,
    CopyNode,
    Edge,
    FillNode,
    GraphSpec,
    KernelNode,
    Parameter,
    Pitched,
    Pointer,
    decode,
    encode,
)
from flare.device.cuda.layout import DEFAULT_BASE, ArenaLayout, plan_layout
from flare.device.cuda.modules import ModuleRegistry, sibling_names
from flare.errors import CoreError, DeviceError

BASE, OTHER = DEFAULT_BASE, DEFAULT_BASE + (1 << 41)
FOREIGN = 0x7F00_0000_0000


def book_at(base: int) -> AddressBook:
    book = AddressBook()
    book.add("weights", base, 4096)
    book.add("pages", base + 8192, 4096)
    return book


def space(base: int = BASE) -> AddressSpace:
    return AddressSpace(book_at(base), plan_layout(base), lambda address: address == FOREIGN)


def kernel(*parameters: bytes, packed: bool = False) -> CapturedKernel:
    return CapturedKernel("digest", "sum_rows", (4, 1, 1), (128, 1, 1), 0, parameters, packed)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def export(*nodes: CapturedNode, base: int = BASE) -> GraphSpec:
    named = name_addresses(CapturedGraph(nodes, ()), space(base))
    return GraphSpec(VERSION, "sm_90", 13000, plan_layout(base), named, ())


def test_pointers_are_found_wherever_they_are() -> None:
    spec = export(
        kernel(words(BASE), b"\1\0\0\0", words(7, BASE + 8192 + 16, 1 << 33) + b"tail"),
        kernel(words(5, BASE + 4096), packed=True),  # the end of weights: nothing begins there
    )
    first, second = spec.nodes
    assert isinstance(first, KernelNode)
    assert isinstance(second, KernelNode)
    assert [p.pointers for p in first.parameters] == [
        (Pointer(0, "weights", 0),),
        (),
        (Pointer(8, "pages", 16),),
    ]
    assert second.parameters[0].pointers == (Pointer(8, "weights", 4096),)


@pytest.mark.parametrize("value", [FOREIGN, BASE + 5000, BASE + 12289])
def test_memory_outside_all_buffers_is_refused(value: int) -> None:
    with pytest.raises(
        GraphExportError, match=r"node 1 \(sum_rows\) parameter 1, byte 8: .* is memory outside"
    ):
        export(kernel(words(BASE)), kernel(words(1), words(0, value)))


def test_copies_and_fills_by_name() -> None:
    pages = BASE + 8192
    spec = export(
        CapturedCopy(CapturedSide(BASE, 64, 0), CapturedSide(pages, 32, 0), (16, 4, 1)),
        CapturedFill(pages + 4, 0, 4, 8, 1, 0),
    )
    assert spec.nodes == (
        CopyNode(Pitched(Address("weights", 0), 64, 0), Pitched(Address("pages", 0), 32, 0), (16, 4, 1)),
        FillNode(Address("pages", 4), 0, 4, 8, 1, 0),
    )


@pytest.mark.parametrize(
    "node",
    [
        CapturedCopy(CapturedSide(FOREIGN, 0, 0), CapturedSide(BASE, 0, 0), (16, 1, 1)),
        CapturedCopy(CapturedSide(BASE, 0, 0), CapturedSide(BASE + 8192, 0, 0), (4097, 1, 1)),
        CapturedCopy(CapturedSide(BASE, 2048, 0), CapturedSide(BASE + 8192, 16, 0), (16, 3, 1)),
        CapturedFill(BASE + 4000, 0, 4, 25, 1, 0),
        CapturedFill(BASE, 0, 1, 16, 3, 2048),
    ],
)
def test_copies_and_fills_beyond_a_buffer_are_refused(node: CapturedNode) -> None:
    with pytest.raises(
        GraphExportError, match=r"node 0, (copy|destination): .* lie outside all named buffers"
    ):
        export(node)


def test_pointers_are_patched_for_another_base() -> None:
    spec = export(kernel(words(3, BASE + 8192 + 8) + b"tail"))
    (node,) = spec.nodes
    assert isinstance(node, KernelNode)
    assert patched(node.parameters[0], book_at(BASE)) == node.parameters[0].data
    assert patched(node.parameters[0], book_at(OTHER)) == words(3, OTHER + 8192 + 8) + b"tail"


@pytest.mark.parametrize("at", [-8, 1, 16])
def test_pointers_outside_their_parameter_are_refused(at: int) -> None:
    with pytest.raises(CoreError, match=f"a pointer at byte {at} of a parameter of 8"):
        patched(Parameter(words(0), (Pointer(at, "weights", 0),)), book_at(BASE))


def captures(parameter: Callable[[int], bytes]) -> tuple[GraphSpec, GraphSpec]:
    return tuple(export(kernel(parameter(base)), base=base) for base in (BASE, OTHER))  # type: ignore[return-value]


def test_two_captures_tell_addresses_from_numbers() -> None:
    number = BASE + 100  # two sizes side by side
    book = space().book
    assert book.resolve(number) is not None
    first, second = captures(lambda base: words(base + 8, BASE + 100))
    confirmed = confirm_relocation(first, msgspec.structs.replace(second))
    (node,) = confirmed.nodes
    assert isinstance(node, KernelNode)
    assert node.parameters[0].pointers == (Pointer(0, "weights", 8),)
    assert confirmed.relocatable
    assert not first.relocatable


@pytest.mark.parametrize(
    "scaled",
    [
        lambda base: base >> 4,
        lambda base: base >> 12 | 5 << 60,
        lambda base: (base >> 16) & 0xFFFF_FFFF | 9 << 32,
        lambda base: (base >> 16 & 0xFFFF_FFFF) << 32 | 9,
    ],
)
def test_addresses_in_another_form_cannot_be_moved(scaled: Callable[[int], int]) -> None:
    first, second = captures(lambda base: words(1, scaled(base)))
    with pytest.raises(GraphExportError, match=r"node 0 \(sum_rows\) parameter 0, byte 8, holds an address"):
        confirm_relocation(first, second)


def test_padding_is_noise() -> None:
    noise = {BASE: (0x1234, 0x5555_0000_1234, b"tail"), OTHER: (BASE + 8, 0x5555_0000_1238, b"liat")}

    def parameter(base: int) -> bytes:
        *values, rest = noise[base]
        # A stale address is patched like a live one: where it points is known in the first capture.
        return words(*values, base + (0 if base == BASE else 16)) + rest

    first, second = captures(parameter)
    (node,) = confirm_relocation(first, second).nodes
    assert isinstance(node, KernelNode)
    assert node.parameters == (Parameter(parameter(BASE), (Pointer(16, "weights", 0),)),)


@pytest.mark.parametrize("change", [{"grid": (5, 1, 1)}, {"image": "other"}, {"function": "sum_columns"}])
def test_captures_of_different_programs(change: dict[str, Any]) -> None:
    first, second = captures(words)
    (node,) = second.nodes
    other = msgspec.structs.replace(second, nodes=(msgspec.structs.replace(node, **change),))
    with pytest.raises(GraphExportError, match=f"{next(iter(change))} differs between two captures"):
        confirm_relocation(first, other)
    with pytest.raises(GraphExportError, match="or other dependencies"):
        confirm_relocation(
            msgspec.structs.replace(first, edges=(Edge(0, 0),)),
            msgspec.structs.replace(second, edges=(Edge(0, 0, 1, 0, True),)),
        )
    with pytest.raises(GraphExportError, match="1 and 0 nodes"):
        confirm_relocation(first, msgspec.structs.replace(second, nodes=()))


def test_payload_round_trip_and_refusals() -> None:
    spec = msgspec.structs.replace(
        export(kernel(words(BASE)), CapturedFill(BASE, 0, 1, 1, 1, 0)),
        edges=(Edge(0, 1, 1, 0, True),),
    )
    payload = encode(spec)
    assert decode(payload, "p") == spec
    assert spec.images == {"digest"}
    for damaged in (payload[:-1], b"{}", payload[:40] + b"\xff" + payload[41:]):
        with pytest.raises(CoreError, match="program p: not a CUDA graph"):
            decode(damaged, "p")
    with pytest.raises(CoreError, match="graph format 2, this engine reads 1"):
        decode(encode(msgspec.structs.replace(spec, version=2)), "p")
    with pytest.raises(CoreError, match="names a node behind the last, 1"):
        decode(encode(msgspec.structs.replace(spec, edges=(Edge(0, 2),))), "p")


def test_layouts_compare_by_value() -> None:
    assert len({plan_layout(), ArenaLayout(DEFAULT_BASE, plan_layout().ranges)}) == 1


def test_functions_and_size_of_an_image() -> None:
    image = kernel_image(["sum_rows", "_Z3addPfS_"], code=b"\x90" * 100)
    assert function_names(image) == {"sum_rows", "_Z3addPfS_"}
    memory = image + b"behind it"
    assert image_bytes(lambda offset, length: memory[offset : offset + length]) == len(image)
    assert function_names(b"PTX or anything else") == frozenset()
    assert image_bytes(lambda offset, length: b"P" * length) is None
    for read in (function_names, variables):
        with pytest.raises(ValueError, match="damaged kernel image"):
            read(image[:-40])


def test_variables_of_an_image() -> None:
    sizes = {"counter": 4, "_ZN1a5tableE": 64}
    assert variables(kernel_image(["sum_rows"], b"\1", sizes)) == sizes
    assert variables(kernel_image(["sum_rows"], b"\1")) == {}
    assert variables(b"PTX or anything else") == {}


def test_images_of_one_name_are_told_apart() -> None:
    registry = ModuleRegistry()
    one, two = (kernel_image(["scale"], code=bytes([number])) for number in (1, 2))
    library = kernel_image(["scale", "shift"], code=b"\3")
    only = kernel_image(["alone"], code=b"\4")
    digests = [registry.add(image) for image in (one, two, library, only)]
    registry.bind(77, two)
    assert registry.add(one) == digests[0]

    def nothing() -> set[str]:
        return set()

    assert registry.find("alone", {5}, nothing) == digests[3]
    assert registry.find("scale", {5, 77}, nothing) == digests[1]
    assert registry.find("scale", set(), lambda: {"scale", "shift"}) == digests[2]
    with pytest.raises(DeviceError, match="kernel scale: 2 different images qualify"):
        registry.find("scale", {5}, lambda: {"scale"})
    with pytest.raises(DeviceError, match="kernel scale: 3 different images qualify"):
        registry.find("scale", {5}, nothing)
    with pytest.raises(DeviceError, match="kernel imagined: no image was seen; collect images before"):
        registry.find("imagined", set(), nothing)
    registry.bind(77, one)  # the handle was given to another module
    assert registry.find("scale", {77}, nothing) == digests[0]


def test_a_driver_that_lists_no_siblings() -> None:
    driver = FakeDriver()
    driver.fail = {"cuFuncGetModule": 1}
    assert sibling_names(driver, 1) == set()

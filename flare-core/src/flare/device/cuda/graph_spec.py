"""A captured graph as data: what the payload of a CUDA program holds, as MessagePack.

Addresses are written by buffer name. A kernel's parameters are kept as bytes, in which the words listed in
`pointers` are replaced at load; kernel images are core tensors of their own, shared by all graphs.
"""

from __future__ import annotations

import msgspec

from flare.device.cuda.address_book import Address
from flare.device.cuda.layout import ArenaLayout
from flare.errors import CoreError

PAYLOAD_FORMAT = "cuda_graph"
VERSION = 1

Extent = tuple[int, int, int]


class Pointer(msgspec.Struct, frozen=True, array_like=True):
    """The 8 bytes at `at` of a parameter hold the address of byte `offset` of `buffer`."""

    at: int
    buffer: str
    offset: int

    @property
    def target(self) -> Address:
        """What it points to."""
        return Address(self.buffer, self.offset)


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """One kernel parameter by value, with the addresses of the recorded base in place."""

    data: bytes
    pointers: tuple[Pointer, ...] = ()


class LaunchAttributes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Attributes of a kernel node (CUlaunchAttributeValue). Programmatic launch is none: edges carry it."""

    cluster: Extent | None = None
    preferred_cluster: Extent | None = None
    cluster_policy: int = 0
    cooperative: bool = False


class KernelNode(msgspec.Struct, frozen=True, tag="kernel"):
    """A kernel launch. `image` is the digest of the image that holds `function`; `grid` in blocks, `block`
    in threads, `shared_bytes` of dynamic shared memory per block. `function_attributes` are (CUfunction
    attribute, value). With `packed`, `parameters` is one buffer that holds all of them."""

    image: str
    function: str
    grid: Extent
    block: Extent
    shared_bytes: int
    parameters: tuple[Parameter, ...]
    packed: bool = False
    attributes: LaunchAttributes = LaunchAttributes()
    function_attributes: tuple[tuple[int, int], ...] = ()


class Pitched(msgspec.Struct, frozen=True, array_like=True):
    """One side of a copy: rows of `pitch` bytes, planes of `height` rows."""

    address: Address
    pitch: int
    height: int


class CopyNode(msgspec.Struct, frozen=True, tag="copy"):
    """Device to device, `extent` = (width in bytes, rows, planes)."""

    source: Pitched
    destination: Pitched
    extent: Extent


class FillNode(msgspec.Struct, frozen=True, tag="fill"):
    """`rows` rows, `pitch` bytes apart, of `width` elements of `element_bytes` set to `value`."""

    destination: Address
    value: int
    element_bytes: int
    width: int
    rows: int
    pitch: int


class EmptyNode(msgspec.Struct, frozen=True, tag="empty"):
    """A join of dependencies."""


Node = KernelNode | CopyNode | FillNode | EmptyNode


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """Node `after` waits for node `before`: for its end or, when `programmatic`, for the trigger that its
    port names, and then the kernel waits by itself for what it needs (CUgraphEdgeData)."""

    before: int
    after: int
    from_port: int = 0
    to_port: int = 0
    programmatic: bool = False


class GraphSpec(msgspec.Struct, frozen=True):
    """A whole graph, captured on `architecture` with a driver for CUDA `driver_version` in an arena of
    `layout`. `relocatable`: two captures at different bases agree on which words are addresses; otherwise
    `immovable` says what must stay at its address."""

    version: int
    architecture: str
    driver_version: int
    layout: ArenaLayout
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    relocatable: bool = False
    immovable: str = ""

    @property
    def images(self) -> frozenset[str]:
        """Digests of the kernel images that it needs."""
        return frozenset(node.image for node in self.nodes if isinstance(node, KernelNode))


def image_tensor(digest: str) -> str:
    """Name of the core tensor that holds a kernel image."""
    return f"cubin/{digest}"


def encode(spec: GraphSpec) -> bytes:
    """The payload of a program."""
    return msgspec.msgpack.encode(spec)


def decode(payload: bytes | memoryview, program: str) -> GraphSpec:
    """Read the payload of `program`. Raises CoreError for anything that is not a graph of this version."""
    field = f"programs.{program}"
    try:
        spec = msgspec.msgpack.decode(payload, type=GraphSpec)
    except msgspec.DecodeError as error:
        raise CoreError(f"program {program}: not a CUDA graph: {error}", field=field) from error
    if spec.version != VERSION:
        raise CoreError(
            f"program {program}: graph format {spec.version}, this engine reads {VERSION}", field=field
        )
    count = len(spec.nodes)
    if any(not 0 <= end < count for edge in spec.edges for end in (edge.before, edge.after)):
        raise CoreError(f"program {program}: an edge names a node behind the last, {count - 1}", field=field)
    return spec

"""Two captures of one program at different bases show which words are addresses.

A word that only looks like an address is the same in both. A word that differs is an address, or noise:
parameter structures have padding, in which whatever lay on the stack is captured. Noise is kept as it is.
A word that differs as the bases do, but scaled, is an address in a form that cannot be patched.
"""

from __future__ import annotations

import struct

import msgspec

from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.graph_spec import GraphSpec, KernelNode, Node, Parameter, Pointer

_WORD = struct.Struct("<Q")
_HALF = (1 << 32) - 1
_LEAST_HALF = 1 << 20  # smaller differences occur by chance
_SHIFTS = range(17)  # addresses are packed in units of up to 64 KiB


def confirm_relocation(spec: GraphSpec, other: GraphSpec) -> GraphSpec:
    """`spec`, relocatable, with the pointers that `other` (captured at another base) confirms.

    Raises GraphExportError, naming node and parameter, when the captures are not of one program or hold
    addresses in another form. Such a graph runs at its recorded base only.
    """
    assert spec.layout.base != other.layout.base, "two captures at one base show nothing"
    if len(spec.nodes) != len(other.nodes) or set(spec.edges) != set(other.edges):
        raise GraphExportError(
            f"two captures differ: {len(spec.nodes)} and {len(other.nodes)} nodes, or other dependencies"
        )
    scaled = _Scaled(spec.layout.base - other.layout.base)
    nodes = tuple(
        _confirmed(number, a, b, scaled)
        for number, (a, b) in enumerate(zip(spec.nodes, other.nodes, strict=True))
    )
    return msgspec.structs.replace(spec, nodes=nodes, relocatable=True)


def _confirmed(number: int, node: Node, other: Node, scaled: _Scaled) -> Node:
    if not isinstance(node, KernelNode) or not isinstance(other, KernelNode):
        if node != other:
            raise GraphExportError(f"node {number} differs between two captures", field=f"nodes.{number}")
        return node
    for field in ("image", "function", "grid", "block", "shared_bytes", "packed", "attributes"):
        if getattr(node, field) != getattr(other, field):
            raise GraphExportError(
                f"node {number} ({node.function}): {field} differs between two captures",
                field=f"nodes.{number}",
            )
    where = f"node {number} ({node.function}) parameter"
    parameters = tuple(
        _confirmed_parameter(f"{where} {index}", a, b, scaled)
        for index, (a, b) in enumerate(zip(node.parameters, other.parameters, strict=True))
    )
    return msgspec.structs.replace(node, parameters=parameters)


def _confirmed_parameter(where: str, first: Parameter, second: Parameter, scaled: _Scaled) -> Parameter:
    if len(first.data) != len(second.data):
        raise GraphExportError(f"{where} has two sizes in two captures", field=where)
    pointers: list[Pointer] = []
    resolved = {pointer.at: pointer for pointer in first.pointers}
    for at in range(0, len(first.data) - _WORD.size + 1, _WORD.size):
        a, b = (_WORD.unpack_from(parameter.data, at)[0] for parameter in (first, second))
        if a == b:
            continue
        if at in resolved:
            pointers.append(resolved[at])
        elif scaled(a, b):
            raise GraphExportError(f"{where}, byte {at}, holds an address that cannot be moved", field=where)
    return Parameter(first.data, tuple(pointers))


class _Scaled:
    """Recognises words that hold, whole or in one half, addresses `difference` bytes apart in other units."""

    def __init__(self, difference: int) -> None:
        self._sign = 1 if difference > 0 else -1
        self._words = frozenset(abs(difference) >> shift for shift in _SHIFTS)
        self._halves = frozenset(half for word in self._words if (half := word & _HALF) >= _LEAST_HALF)

    def __call__(self, first: int, second: int) -> bool:
        low = self._sign * ((first & _HALF) - (second & _HALF)) & _HALF
        high = self._sign * ((first >> 32) - (second >> 32)) & _HALF
        whole = self._sign * (first - second)
        return whole in self._words or low in self._halves or high in self._halves

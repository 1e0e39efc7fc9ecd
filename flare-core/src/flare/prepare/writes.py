"""What a graph writes: a compiler that moves calls must see every write, and whose memory it goes to."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from itertools import combinations

import torch
from torch import fx

from flare.contract import BufferView
from flare.contract.buffers import dense_strides


def written_operands(graph: fx.Graph) -> Iterator[fx.Node]:
    """Every operand that a call writes, in the order of calls."""
    for node in graph.nodes:
        yield from written_operands_of(node)


def written_operands_of(node: fx.Node) -> Iterator[fx.Node]:
    """Every operand that one call writes."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for argument, value in zip(schema.arguments, _by_position(schema, node), strict=True):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        for operand in value if isinstance(value, list | tuple) else (value,):
            if isinstance(operand, fx.Node):
                yield operand


def memory_of(node: fx.Node) -> fx.Node:
    """The input, or the call, that made the memory which a value is a view of."""
    while node.op == "call_function":
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or not (node.target is operator.getitem or is_view(node)):
            return node
        if node.target is operator.getitem and not is_view(source):
            return node
        node = source
    return node


def overlapping(views: Mapping[fx.Node, BufferView], written: set[fx.Node]) -> tuple[fx.Node, fx.Node] | None:
    """Two inputs that share bytes, one of which is written; None when every write has one name."""
    by_buffer: dict[str, list[fx.Node]] = {}
    for node, view in views.items():
        by_buffer.setdefault(view.buffer, []).append(node)
    for nodes in by_buffer.values():
        for a, b in combinations(nodes, 2):
            if (a in written or b in written) and _share(views[a], views[b]):
                return a, b
    return None


def _by_position(schema: torch.FunctionSchema, node: fx.Node) -> list[object]:
    return [
        node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        for index, argument in enumerate(schema.arguments)
    ]


def is_view(node: fx.Node) -> bool:
    """Whether the result may be a view of the first operand, or is it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments or schema.arguments[0].alias_info is None:
        return False
    return any(result.alias_info is not None for result in schema.returns)


def _share(a: BufferView, b: BufferView) -> bool:
    """Whether two views may have a byte in common: exact for blocks that repeat at one distance, such as the
    layers of a page; otherwise the spans decide."""
    if a.offset >= b.end or b.offset >= a.end:
        return False
    (step_a, block_a), (step_b, block_b) = _blocks(a), _blocks(b)
    if not step_a or step_a != step_b:
        return True
    begin_a, begin_b = a.offset % step_a, b.offset % step_a
    if begin_a + block_a > step_a or begin_b + block_b > step_a:
        return True
    return begin_a < begin_b + block_b and begin_b < begin_a + block_a


def _blocks(view: BufferView) -> tuple[int, int]:
    """Bytes between the starts of the outermost dimension's elements, and bytes that one of them spans."""
    if not view.shape or not math.prod(view.shape):
        return 0, 0
    strides = view.strides or dense_strides(view.shape)
    size = view.dtype.itemsize
    inner = sum((extent - 1) * stride for extent, stride in zip(view.shape[1:], strides[1:], strict=True))
    return strides[0] * size, (inner + 1) * size

"""Where a graph can be compiled: regions of pure work between calls that stay as they are.

Operators of a library, and whatever writes memory, stay calls. Everything else moves to the earliest place
that its operands allow, so that work of one kind meets in one region however it was written down: what all
layers share is computed once before the first.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from flare.prepare.writes import is_view, memory_of, written_operands_of

_UNWRITTEN = ("empty", "new_empty")
"""Operators whose result is memory for others to write."""


@dataclass(frozen=True)
class Region:
    """Calls without side effects that run together: `inputs` are made before, `outputs` are used after."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


def sort_into_regions(graph: fx.Graph) -> list[Region]:
    """Order `graph` so that every region is contiguous, and return the regions in their order.

    Every call stays behind what it reads and what wrote that memory before, and before what writes it later.
    """
    pure = _pure(graph)
    _give_constants_to_users(graph, pure)
    needs = _hazards(graph)
    levels: dict[fx.Node, int] = {}
    for node in graph.nodes:
        before = {*node.all_input_nodes, *needs[node]}
        # A region is behind the calls of the level before; calls are behind the region of their level.
        levels[node] = max((levels[n] + (node in pure and n not in pure) for n in before), default=0)
    used = {levels[node] for node in pure if node.all_input_nodes}
    for node in pure:
        if not node.all_input_nodes:  # made where it is used, or in the last region before
            first = min(levels[user] for user in node.users)
            levels[node] = max((level for level in used if level <= first), default=first)
    order = {node: index for index, node in enumerate(graph.nodes)}
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    calls.sort(key=lambda node: (levels[node], node not in pure, order[node]))
    anchor = next(node for node in graph.nodes if node.op == "output")
    for node in calls:
        anchor.prepend(node)
    members: dict[int, list[fx.Node]] = defaultdict(list)
    for node in calls:
        if node in pure:
            members[levels[node]].append(node)
    return [_region(nodes) for _, nodes in sorted(members.items())]


def replace_regions(module: fx.GraphModule, make: Callable[[Region], torch.nn.Module]) -> int:
    """Put what `make` gives in the place of every region that computes: a module that takes the region's
    inputs and returns a tuple of its outputs. Returns their number."""
    count = 0
    # From the end: what is before a region still names what it takes.
    for region in reversed(sort_into_regions(module.graph)):
        if any(map(_is_work, region.nodes)):
            _replace(module, region, f"region_{count}", make(region))
            count += 1
    module.recompile()
    return count


def _replace(module: fx.GraphModule, region: Region, name: str, call: torch.nn.Module) -> None:
    graph = module.graph
    module.add_submodule(name, call)
    with graph.inserting_before(region.nodes[0]):
        results = graph.call_module(name, region.inputs)
        for index, node in enumerate(region.outputs):
            result = graph.call_function(operator.getitem, (results, index))
            result.meta = node.meta
            node.replace_all_uses_with(result)
    for node in reversed(region.nodes):
        graph.erase_node(node)


def _is_work(node: fx.Node) -> bool:
    return node.target is not operator.getitem and not is_view(node)


def _region(nodes: list[fx.Node]) -> Region:
    inside = set(nodes)
    inputs = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return Region(tuple(nodes), tuple(inputs), tuple(outputs))


def _pure(graph: fx.Graph) -> set[fx.Node]:
    """Calls that may be in a region. Views of other memory than a region's stay outside, and so do views that
    are used outside: what leaves a region is memory of its own, which later calls may write."""
    pure: set[fx.Node] = set()
    for node in graph.nodes:
        if _is_pure(node) and not (_names_memory(node) and not set(node.all_input_nodes) <= pure):
            pure.add(node)
    for node in reversed(list(graph.nodes)):
        if node in pure and _names_memory(node):
            outside = [user for user in node.users if user not in pure]
            if outside:
                with graph.inserting_after(node):
                    copy = graph.node_copy(node, lambda n: n)
                for user in outside:
                    user.replace_input_with(node, copy)
            if not node.users:
                pure.remove(node)
                graph.erase_node(node)
    return pure


def _give_constants_to_users(graph: fx.Graph, pure: set[fx.Node]) -> None:
    """What is made of nothing costs nothing where it is computed with: every such use gets its own."""
    for node in [n for n in graph.nodes if n in pure and not n.all_input_nodes]:
        computing = [user for user in node.users if user in pure]
        for user in computing[len(computing) == len(node.users) :]:
            with graph.inserting_after(node):
                copy = graph.node_copy(node)
            pure.add(copy)
            user.replace_input_with(node, copy)


def _names_memory(node: fx.Node) -> bool:
    """Whether a result is part of what another call made."""
    return is_view(node) or (node.target is operator.getitem and is_view(node.args[0]))


def _is_pure(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return _is_pure(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in ("aten", "prims"):
        return False
    schema = node.target._schema
    return not schema.is_mutable and not schema.name.partition("::")[2].startswith(_UNWRITTEN)


def _hazards(graph: fx.Graph) -> dict[fx.Node, set[fx.Node]]:
    """For every call, earlier calls that it must stay behind for what is in memory, not for a result."""
    needs: dict[fx.Node, set[fx.Node]] = defaultdict(set)
    writers: dict[fx.Node, fx.Node] = {}
    readers: dict[fx.Node, set[fx.Node]] = defaultdict(set)
    for node in graph.nodes:
        written = {memory_of(operand) for operand in written_operands_of(node)}
        read = {memory_of(operand) for operand in node.all_input_nodes}
        for memory in read | written:
            if memory in writers:
                needs[node].add(writers[memory])
        for memory in written:
            needs[node] |= readers[memory] - {node}
            readers[memory].clear()
            writers[memory] = node
        for memory in read:
            readers[memory].add(node)
    return needs

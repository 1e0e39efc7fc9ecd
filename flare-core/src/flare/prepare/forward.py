"""A program as one graph over its storage, for devices on which torch runs the graph itself.

Traced with tensors that have no memory. `torch.export`, which operator lists come from, takes twice as long.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from flare.contract import BufferView
from flare.prepare.cuda_tensors import materialised
from flare.prepare.definition import ProgramDefinition
from flare.prepare.passes import remove_dead, simplify
from flare.prepare.trace import TraceError, meta_tensor
from flare.prepare.writes import memory_of, overlapping, written_operands

GraphPass = Callable[[fx.Graph], int]
"""Rewrites a graph in place; returns how often."""
Decompositions = Mapping[Any, Callable[..., Any]]


@dataclass(frozen=True)
class Forward:
    """`module` takes one tensor for each of `views`, which are distinct, and returns nothing: what a program
    computes is in its buffers afterwards. The layout of every value is in its node's `meta["val"]`."""

    name: str
    module: fx.GraphModule
    views: tuple[BufferView, ...]


def build_forward(
    definition: ProgramDefinition,
    device: torch.device,
    passes: tuple[GraphPass, ...] = (),
    decompositions: Decompositions | None = None,
) -> Forward:
    """Trace a program for `device` and simplify it, then run `passes`. Results that only diagnostics read are
    dropped. Raises TraceError naming the program."""
    if arguments := list(inspect.signature(definition.module.forward).parameters):
        raise TraceError(f"program {definition.name} takes no arguments, its forward has {arguments}")
    _check_layouts(definition)
    views = tuple(dict.fromkeys(definition.views.values()))  # equal views are one input
    fake = FakeTensorMode()

    def run(*tensors: Tensor) -> None:
        given = _Given(dict(zip(views, tensors, strict=True)))
        with materialised((definition,), given, parameters=False):
            definition.module()

    try:
        with torch.no_grad(), torch.device("meta"), fake, _Operators():
            inputs = [meta_tensor(view) for view in views]
            module = make_fx(run, decomposition_table=dict(decompositions or {}))(*inputs)
    except Exception as error:
        raise TraceError(f"program {definition.name} cannot be traced: {error}") from error
    graph = module.graph
    for node in graph.nodes:
        if node.op not in ("placeholder", "call_function", "output"):
            raise TraceError(
                f"program {definition.name}, node {node.name}: unsupported node {node.op} ({node.target}); "
                "constants must be buffers"
            )
    _move(graph, device)
    simplify(graph)
    used = _drop_unused(graph, views)
    _check_writes(used, definition)
    for rewrite in passes:
        rewrite(graph)
    remove_dead(graph)
    graph.lint()
    _describe(graph, fake)
    module.recompile()
    return Forward(definition.name, module, tuple(used.values()))


class _Operators(TorchFunctionMode):  # type: ignore[misc]
    """Products are operators of the library, before they become several of torch's."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.linear and not kwargs and args[0].dim() == 2:
            x, weight, *bias = args
            return torch.ops.flare.linear(x, weight, *(bias or [None]))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class _Given:
    tensors: Mapping[BufferView, Tensor]

    def view(self, view: BufferView) -> Tensor:
        return self.tensors[view]


def _check_layouts(definition: ProgramDefinition) -> None:
    for name, view in definition.views.items():
        path, _, leaf = name.rpartition(".")
        tensor, want = getattr(definition.module.get_submodule(path), leaf), meta_tensor(view)
        if (tensor.dtype, tensor.shape) != (want.dtype, want.shape):
            raise TraceError(
                f"program {definition.name}: {name} is {tensor.dtype} {tuple(tensor.shape)}, its view is "
                f"{want.dtype} {tuple(want.shape)}"
            )


def _move(graph: fx.Graph, device: torch.device) -> None:
    for node in graph.nodes:
        node.args, node.kwargs = fx.node.map_aggregate(
            (node.args, dict(node.kwargs)), lambda value: device if isinstance(value, torch.device) else value
        )


def _drop_unused(graph: fx.Graph, views: tuple[BufferView, ...]) -> dict[fx.Node, BufferView]:
    """Inputs that are used, with their storage."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    used = {node: view for node, view in zip(inputs, views, strict=True) if node.users}
    for node in inputs:
        if node not in used:
            graph.erase_node(node)
    return used


def _check_writes(views: Mapping[fx.Node, BufferView], definition: ProgramDefinition) -> None:
    written = (
        {memory_of(operand) for operand in written_operands(next(iter(views)).graph)} if views else set()
    )
    shared = overlapping(views, written)
    if shared is not None:
        a, b = (views[node] for node in shared)
        raise TraceError(
            f"program {definition.name}: two views of {a.buffer} share bytes ({a.offset} to {a.end}, "
            f"{b.offset} to {b.end}) and one is written; use one view of them"
        )


def _describe(graph: fx.Graph, fake: FakeTensorMode) -> None:
    """Values of nodes that passes have made."""
    with fake:
        for node in graph.nodes:
            if node.op == "call_function" and "val" not in node.meta:
                args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
                node.meta["val"] = node.target(*args, **kwargs)

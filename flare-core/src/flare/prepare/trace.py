"""Tracing: a program module becomes a typed operator list.

The module's tensors are on the meta device, so tracing touches no weights. `torch.export` keeps in-place
writes as they are (checked with torch 2.13), which is what makes a program a function of its buffers.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from flare.contract import BufferView, Operator, OperatorList, Step
from flare.contract.buffers import dense_strides
from flare.device.torch_types import CONTRACT_DTYPES, TORCH_DTYPES
from flare.prepare.definition import ProgramDefinition
from flare.prepare.passes import simplify


class TraceError(RuntimeError):
    """A program module does something that an operator list cannot hold. A recipe bug."""


def trace(definition: ProgramDefinition) -> OperatorList:
    """Trace `definition.module` and encode it. Raises TraceError naming program and node."""
    if arguments := list(inspect.signature(definition.module.forward).parameters):
        raise TraceError(f"program {definition.name} takes no arguments, its forward has {arguments}")
    try:
        with torch.no_grad(), torch.device("meta"):
            exported = torch.export.export(definition.module, (), strict=False)
    except Exception as error:
        raise TraceError(f"program {definition.name} cannot be traced: {error}") from error
    signature = exported.graph_signature
    placeholders = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    simplify(exported.graph_module.graph)
    return _Encoder(definition, placeholders).encode(exported.graph_module.graph)


class _Encoder:
    def __init__(self, definition: ProgramDefinition, placeholders: dict[str, str]) -> None:
        self.definition = definition
        self.placeholders = placeholders
        self.views: list[BufferView] = []
        self.view_index: dict[BufferView, int] = {}
        self.operators: list[Operator] = []
        self.operator_index: dict[str, int] = {}
        self.values: dict[fx.Node, dict[str, int]] = {}
        self.outputs: dict[fx.Node, tuple[int, ...]] = {}
        self.temporaries = 0
        self.steps: list[Step] = []

    def encode(self, graph: fx.Graph) -> OperatorList:
        probes: dict[str, int] = {}
        for node in graph.nodes:
            match node.op:
                case "placeholder":
                    self._placeholder(node)
                case "call_function" if node.target is operator.getitem:
                    source, index = node.args
                    self.values[node] = {"t": self.outputs[source][index]}
                case "call_function":
                    self._call(node)
                case "output":
                    probes = self._probes(node)
                case _:
                    raise self._error(
                        node, f"unsupported node {node.op} ({node.target}); constants must be buffers"
                    )
        return OperatorList(
            views=tuple(self.views), operators=tuple(self.operators), steps=tuple(self.steps), probes=probes
        )

    def _error(self, node: fx.Node, reason: str) -> TraceError:
        return TraceError(f"program {self.definition.name}, node {node.name}: {reason}")

    def _placeholder(self, node: fx.Node) -> None:
        target = self.placeholders.get(node.name)
        if target is None:
            raise self._error(node, "a program takes no arguments and lifts no constants")
        if not node.users:
            return
        view = self.definition.views.get(target)
        if view is None:
            raise self._error(node, f"{target} has no storage in the contract")
        meta = node.meta["val"]
        have = (CONTRACT_DTYPES[meta.dtype], tuple(meta.shape), tuple(meta.stride()))
        want = (view.dtype, view.shape, view.strides or dense_strides(view.shape))
        if have[:2] != want[:2] or (0 not in view.shape and _moving(have) != _moving(want)):
            raise self._error(node, f"{target} is {have}, its view is {want}")
        if view not in self.view_index:
            self.view_index[view] = len(self.views)
            self.views.append(view)
        self.values[node] = {"v": self.view_index[view]}

    def _call(self, node: fx.Node) -> None:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            raise self._error(node, f"{target} is not an operator")
        schema = target._schema
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if name not in self.operator_index:
            self.operator_index[name] = len(self.operators)
            self.operators.append(Operator(name=name, schema_text=str(schema)))
        results = len(schema.returns)
        if results == 1 and isinstance(node.meta["val"], list | tuple):
            # One returned list: every element is a temporary of its own.
            results = len(node.meta["val"])
            if results == 1:
                raise self._error(node, "a list of one tensor is not told apart from a tensor")
        out = tuple(range(self.temporaries, self.temporaries + results))
        self.temporaries += results
        if results == 1:
            self.values[node] = {"t": out[0]}
        self.outputs[node] = out
        self.steps.append(
            Step(
                op=self.operator_index[name],
                args=tuple(self._operand(node, value) for value in node.args),
                keywords={
                    key: self._operand(node, value)
                    for key, value in node.kwargs.items()
                    if key not in ("device", "pin_memory", "layout")
                },
                out=out,
            )
        )

    def _operand(self, node: fx.Node, value: Any) -> Any:
        match value:
            case fx.Node():
                return self.values[value]
            case None | bool() | int() | str():
                return value
            case float():
                return value if math.isfinite(value) else {"f": str(value)}
            case list() | tuple():
                return [self._operand(node, item) for item in value]
            case torch.dtype():
                return {"dtype": CONTRACT_DTYPES[value].value}
            case torch.memory_format():
                return {"named": "memory_format", "value": str(value).removeprefix("torch.")}
            case _:
                raise self._error(node, f"operand {value!r} of type {type(value).__name__}")

    def _probes(self, node: fx.Node) -> dict[str, int]:
        names = getattr(self.definition.module, "probes", ())
        leaves: Iterable[Any] = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
        tensors = [leaf for leaf in leaves if isinstance(leaf, fx.Node)]
        if len(tensors) != len(names):
            raise self._error(node, f"{len(tensors)} outputs for the probes {tuple(names)}")
        probes = {}
        for name, leaf in zip(names, tensors, strict=True):
            value = self.values[leaf]
            if "t" not in value:
                raise self._error(node, f"probe {name} is a buffer, not a temporary")
            probes[name] = value["t"]
        return probes


def _moving(layout: tuple[Any, tuple[int, ...], tuple[int, ...]]) -> tuple[int, ...]:
    """Strides of dimensions that have more than one element; the others are free."""
    _, shape, strides = layout
    return tuple(stride for extent, stride in zip(shape, strides, strict=True) if extent > 1)


def meta_tensor(view: BufferView) -> torch.Tensor:
    """A meta tensor with the layout of `view`, to register in a program module."""
    return torch.empty_strided(
        view.shape,
        view.strides or dense_strides(view.shape),
        dtype=TORCH_DTYPES[view.dtype],
        device="meta",
    )

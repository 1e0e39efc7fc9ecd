"""Operators of the CPU device: resolved by name, schemas compared, weights packed at load.

A core keeps the schema each operator had. An operator may have gained arguments with defaults since, for they
leave a recorded call what it was; any other difference refuses the core.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from flare.contract import Operator, OperatorLibrary
from flare.device.library import check_library
from flare.errors import CoreError

Call = Callable[..., Any]


def load_library(library: OperatorLibrary | None) -> ModuleType | None:
    """Import the operator library a core names. Raises CoreError when absent or of another version."""
    if library is None:
        return None
    check_library(library)
    return importlib.import_module(library.module)


class OperatorTable:
    """Resolves operators and binds constant operands. `packed_bytes` counts what binding allocated."""

    def __init__(self, library: ModuleType | None) -> None:
        self._binding = getattr(library, "bind", None)
        self._packed: dict[Any, Any] = {}
        self.packed_bytes = 0

    def resolve(self, operator: Operator) -> Call:
        """The callable of an operator. Raises CoreError when unknown or of another schema."""
        namespace, _, rest = operator.name.partition("::")
        name, _, overload = rest.partition(".")
        if namespace not in ("aten", "flare"):
            raise CoreError(f"operator {operator.name} does not run on the CPU", field=operator.name)
        try:
            resolved = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        except AttributeError as error:
            raise CoreError(f"operator {operator.name} is not available here", field=operator.name) from error
        if not isinstance(resolved, torch._ops.OpOverload):
            raise CoreError(f"{operator.name} is not an operator", field=operator.name)
        if not _takes_calls_of(resolved._schema, operator.schema_text):
            raise CoreError(
                f"operator {operator.name} has the schema {resolved._schema}, "
                f"the core was prepared with {operator.schema_text}",
                field=operator.name,
            )
        if any(argument.name == "filename" for argument in resolved._schema.arguments):
            raise CoreError(f"operator {operator.name} opens files; a core may not", field=operator.name)
        call: Call = resolved
        return call

    def bind(self, name: str, args: tuple[Any, ...], constant: tuple[bool, ...]) -> Call | None:
        """A callable that uses packed copies of constant operands, or None when nothing is gained."""
        if self._binding is None:
            return None
        bound = self._binding(name, args, constant, self._packed)
        if bound is None:
            return None
        self.packed_bytes += bound.nbytes
        call: Call = bound.call
        return call


def _takes_calls_of(schema: torch.FunctionSchema, recorded: str) -> bool:
    """Whether calls that were written for the schema `recorded` mean the same under `schema`."""
    if str(schema) == recorded:
        return True
    try:
        compatible: bool = schema.is_backward_compatible_with(torch._C.parse_schema(recorded))
    except RuntimeError:
        return False
    return compatible

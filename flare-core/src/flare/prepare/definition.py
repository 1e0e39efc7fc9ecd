"""What a recipe hands to preparation: buffers, and programs as torch modules without arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flare.contract import (
    BufferSpec,
    BufferView,
    CompletionBinding,
    OperatorLibrary,
    PendingTokens,
    ProgramKind,
    TableResource,
    TableUse,
    ValueBinding,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class ProgramDefinition:
    """One program before tracing.

    `module` computes with its registered parameters and buffers only: `forward()` takes and returns
    nothing that outlives it. `views` maps the qualified name of every parameter and buffer that the module
    touches to contract storage; metadata (shape, dtype, strides) must agree. The forward may return a
    mapping name -> tensor of probes for diagnostics.
    """

    name: str
    kind: ProgramKind
    lanes: int
    tokens: int
    module: nn.Module
    views: Mapping[str, BufferView]
    bindings: tuple[ValueBinding, ...]
    completion: tuple[CompletionBinding, ...] = ()
    pending: PendingTokens = PendingTokens.NONE
    rows_per_lane: int = 0
    tables: tuple[TableUse, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProgramSet:
    """Every buffer and program of one rank, the module that registers their operators, the tables whose rows
    they read, each a `TableRule` of the tensor map, and by name the contents of `constants`: core tensors of
    buffers that no model has, such as numbers of a hash."""

    buffers: tuple[BufferSpec, ...]
    programs: tuple[ProgramDefinition, ...]
    operator_library: OperatorLibrary
    tables: tuple[TableResource, ...] = ()
    constants: Mapping[str, Tensor] = field(default_factory=dict)

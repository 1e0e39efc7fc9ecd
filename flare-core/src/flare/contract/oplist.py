"""Operator lists: programs for devices that run named operators (cpu and sim).

A list is executed straight through. Every operand is a view of a contract buffer, a temporary of an
earlier step, or a literal. Stored in the core as JSON; nothing in it is code. `operators` records the
schema of every operator at preparation, which a device compares with its own before running anything: later
schemas may have gained arguments with defaults, nothing else.

Literals are JSON values, except:
`{"t": n}` temporary n, `{"v": n}` view n, `{"dtype": code}`, `{"f": "inf" | "-inf" | "nan"}`,
`{"named": kind, "value": text}` for a layout, memory format or device.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator, model_validator

from flare.contract.base import ContractModel
from flare.contract.buffers import BufferView

OPERATOR_NAME = re.compile(r"(aten|flare|sim)::[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?")


class Step(ContractModel):
    """Call operator number `op` with positional `args` and keyword `keywords`; results go to temporaries
    `out` (one per result, -1 for a result nobody uses)."""

    op: int = Field(ge=0)
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    out: tuple[int, ...] = ()


class Operator(ContractModel):
    """An operator by qualified name (`namespace::name.overload`) and its schema text."""

    name: str
    schema_text: str

    @field_validator("name")
    @classmethod
    def _admitted(cls, name: str) -> str:
        if not OPERATOR_NAME.fullmatch(name):
            raise ValueError(f"operator {name!r} is not in an admitted namespace (aten, flare, sim)")
        return name


class OperatorList(ContractModel):
    """A complete program. `probes` names temporaries that diagnostics may read."""

    views: tuple[BufferView, ...]
    operators: tuple[Operator, ...]
    steps: tuple[Step, ...]
    probes: dict[str, int] = {}

    @model_validator(mode="after")
    def _closed(self) -> OperatorList:
        defined: set[int] = set()
        results = sum(len(step.out) for step in self.steps)
        for index, step in enumerate(self.steps):
            if step.op >= len(self.operators):
                raise ValueError(f"step {index}: operator {step.op} of {len(self.operators)}")
            _check_operands([step.args, step.keywords], defined, len(self.views), index)
            for temporary in step.out:
                if temporary in defined or not -1 <= temporary < results:
                    raise ValueError(f"step {index}: temporary {temporary} is produced twice or out of range")
                defined.update([temporary] if temporary >= 0 else [])
        for name, temporary in self.probes.items():
            if temporary not in defined:
                raise ValueError(f"probe {name!r}: temporary {temporary} is never produced")
        return self


def _check_operands(value: Any, defined: set[int], views: int, index: int) -> None:
    if isinstance(value, dict):
        if "t" in value and not (type(value["t"]) is int and value["t"] in defined):
            raise ValueError(f"step {index}: temporary {value['t']} is read before it is produced")
        if "v" in value and not (type(value["v"]) is int and 0 <= value["v"] < views):
            raise ValueError(f"step {index}: view {value['v']} of {views}")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            _check_operands(item, defined, views, index)

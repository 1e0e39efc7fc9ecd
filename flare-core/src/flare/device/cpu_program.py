"""An operator list made ready to run: operands resolved once, then straight through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flare.contract import DType, OperatorList, Step
from flare.device.cpu_memory import CpuMemory
from flare.device.cpu_operators import OperatorTable
from flare.device.torch_types import TORCH_DTYPES
from flare.errors import CoreError


@dataclass(slots=True)
class _Instruction:
    call: Callable[..., Any]
    args: list[Any]
    # (position, temporary) of operands produced by earlier instructions.
    fixups: tuple[tuple[int, int], ...]
    # Operands that hold temporaries inside lists, rebuilt on every run.
    nested: tuple[tuple[int, Any], ...]
    keywords: dict[str, Any]
    out: tuple[int, ...]
    dead: tuple[int, ...]


class CpuProgram:
    """Runs one program. `live_buffers` are the buffers it reads other than through packed copies."""

    def __init__(self, name: str, listing: OperatorList, memory: CpuMemory, table: OperatorTable) -> None:
        self.name = name
        for view in listing.views:
            memory.check(view)
        self._listing = listing
        self._memory = memory
        self.live_buffers: set[str] = set()
        calls = [table.resolve(operator) for operator in listing.operators]
        dying: dict[int, list[int]] = {}
        for temporary, index in _last_uses(listing).items():
            dying.setdefault(index, []).append(temporary)
        # One place more: -1, a result nobody uses, lands behind the last temporary.
        self._temporaries = 2 + max((t for step in listing.steps for t in step.out), default=-1)
        self._instructions = [
            self._instruction(index, step, calls[step.op], listing.operators[step.op].name, table, dying)
            for index, step in enumerate(listing.steps)
        ]
        self._probes = listing.probes

    def _instruction(
        self,
        index: int,
        step: Step,
        call: Callable[..., Any],
        name: str,
        table: OperatorTable,
        dying: Mapping[int, list[int]],
    ) -> _Instruction:
        views = [_view_of(arg) for arg in step.args]
        args = [self._operand(arg) for arg in step.args]
        constant = tuple(
            view is not None and self._memory.is_constant(self._listing.views[view]) for view in views
        )
        _refuse_writes(self.name, call, constant)
        bound = table.bind(name, tuple(args), constant) if any(constant) else None
        for position, view in enumerate(views):
            if view is None:
                continue
            if bound is not None and constant[position]:
                args[position] = None
            else:
                self.live_buffers.add(self._listing.views[view].buffer)
        nested_views = _views_in([arg for arg in step.args if isinstance(arg, list)])
        for view in (*nested_views, *_views_in(list(step.keywords.values()))):
            self.live_buffers.add(self._listing.views[view].buffer)
        fixups, nested = [], []
        for position, arg in enumerate(step.args):
            if isinstance(arg, dict) and "t" in arg:
                fixups.append((position, arg["t"]))
            elif isinstance(arg, list) and any(isinstance(item, dict) and "t" in item for item in arg):
                nested.append((position, arg))
        if any(isinstance(v, dict) and "t" in v for v in step.keywords.values()):
            raise CoreError(f"program {self.name}, step {index}: temporaries as keywords are not supported")
        dead = dying.get(index, [])
        return _Instruction(
            call=bound or call,
            args=args,
            fixups=tuple(fixups),
            nested=tuple(nested),
            keywords={key: self._operand(value) for key, value in step.keywords.items()},
            out=step.out,
            dead=tuple(dead),
        )

    def _operand(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._operand(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"t": int()}:
                return None
            case {"v": int(index)}:
                return self._memory.view(self._listing.views[index])
            case {"dtype": str(code)}:
                return TORCH_DTYPES[DType(code)]
            case {"f": "inf" | "-inf" | "nan" as text}:
                return float(text)
            case {"named": "memory_format", "value": "contiguous_format" | "preserve_format" as text}:
                return getattr(torch, text)
        raise CoreError(f"program {self.name}: unknown operand {value!r}")

    def run(self) -> None:
        """Execute every instruction in order."""
        self._execute(frozenset())

    def run_probed(self) -> dict[str, torch.Tensor]:
        """Execute and return copies of the probes, taken when each is produced."""
        captured = self._execute(frozenset(self._probes.values()))
        return {name: captured[temporary] for name, temporary in self._probes.items()}

    def _execute(self, probed: frozenset[int]) -> dict[int, torch.Tensor]:
        values: list[Any] = [None] * self._temporaries
        captured: dict[int, torch.Tensor] = {}
        for instruction in self._instructions:
            args = instruction.args
            if instruction.fixups or instruction.nested:
                args = args.copy()
                for position, temporary in instruction.fixups:
                    args[position] = values[temporary]
                for position, template in instruction.nested:
                    args[position] = self._nested(template, values)
            result = instruction.call(*args, **instruction.keywords)
            out = instruction.out
            if len(out) == 1:
                values[out[0]] = result
            elif out:
                for temporary, item in zip(out, result, strict=True):
                    values[temporary] = item
            if probed:
                captured.update({t: values[t].clone() for t in probed.intersection(out)})
            for temporary in instruction.dead:
                values[temporary] = None
        return captured

    def _nested(self, template: Any, values: list[Any]) -> Any:
        if isinstance(template, list):
            return [self._nested(item, values) for item in template]
        if isinstance(template, dict) and "t" in template:
            return values[template["t"]]
        return self._operand(template)


def _refuse_writes(program: str, call: Any, constant: Sequence[bool]) -> None:
    """Raise CoreError where an operator writes a constant, which may be a mapped part of the file."""
    schema = call._schema
    for argument, fixed in zip(schema.arguments, constant, strict=False):
        if fixed and argument.alias_info is not None and argument.alias_info.is_write:
            raise CoreError(f"program {program}: {schema.name} writes a constant", field=program)


def _view_of(value: Any) -> int | None:
    return value["v"] if isinstance(value, dict) and "v" in value else None


def _views_in(value: Any) -> list[int]:
    if isinstance(value, list):
        return [view for item in value for view in _views_in(item)]
    view = _view_of(value)
    return [] if view is None else [view]


def _last_uses(listing: OperatorList) -> dict[int, int]:
    """For every temporary, the step after which nobody reads it (its own step when nobody does)."""
    last: dict[int, int] = {}

    def visit(value: Any, index: int) -> None:
        if isinstance(value, dict):
            if "t" in value:
                last[value["t"]] = index
        elif isinstance(value, list | tuple):
            for item in value:
                visit(item, index)

    for index, step in enumerate(listing.steps):
        for temporary in step.out:
            last[temporary] = index
        visit(step.args, index)
    return last

"""Assembling operator-list programs by hand, for models that are written and not traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.contract import (
    BufferSpec,
    BufferView,
    CompletionBinding,
    CompletionField,
    DType,
    Operator,
    OperatorList,
    Region,
    Step,
    ValueBinding,
    ValueSource,
)

UPLOAD = "upload"
COMPLETION = "completion"
ALIGNMENT = 64


class Assembly:
    """Collects the views, bindings and steps of one program. `schemas` maps operator names to schemas."""

    def __init__(self, schemas: dict[str, str]) -> None:
        self._schemas = schemas
        self._views: list[BufferView] = []
        self._operators: list[str] = []
        self._steps: list[Step] = []
        self._temporaries = 0
        self.bindings: list[ValueBinding] = []
        self.completion: list[CompletionBinding] = []

    def view(self, view: BufferView) -> dict[str, int]:
        """An operand that is a view of a buffer."""
        if view not in self._views:
            self._views.append(view)
        return {"v": self._views.index(view)}

    def value(
        self, source: ValueSource, dtype: DType, *shape: int, table: str | None = None
    ) -> dict[str, int]:
        """Bind `source` (of `table`) behind the bindings so far, and return it as an operand."""
        offset = _aligned(max((binding.view.end for binding in self.bindings), default=0))
        view = BufferView(buffer=UPLOAD, dtype=dtype, shape=shape, offset=offset)
        self.bindings.append(ValueBinding(source=source, view=view, table=table))
        return self.view(view)

    def report(self, field: CompletionField, dtype: DType, *shape: int) -> dict[str, int]:
        """Bind a completion field behind those so far, and return it as an operand."""
        offset = _aligned(max((binding.view.end for binding in self.completion), default=0))
        view = BufferView(buffer=COMPLETION, dtype=dtype, shape=shape, offset=offset)
        self.completion.append(CompletionBinding(field=field, view=view))
        return self.view(view)

    def call(self, operator: str, *args: Any, results: int = 0) -> dict[str, int]:
        """Append a call; returns its (first) result as an operand."""
        if operator not in self._operators:
            self._operators.append(operator)
        first = self._temporaries
        self._temporaries += results
        out = tuple(range(first, self._temporaries))
        self._steps.append(Step(op=self._operators.index(operator), args=args, out=out))
        return {"t": first}

    def listing(self) -> OperatorList:
        """The finished program."""
        return OperatorList(
            views=tuple(self._views),
            operators=tuple(Operator(name=n, schema_text=self._schemas[n]) for n in self._operators),
            steps=tuple(self._steps),
        )


def place(region: Region, entries: Sequence[tuple[str, DType, tuple[int, ...]]]) -> list[BufferSpec]:
    """Zeroed buffers one behind the other in `region`, aligned."""
    buffers: list[BufferSpec] = []
    cursor = 0
    for name, dtype, shape in entries:
        buffer = BufferSpec(name=name, region=region, dtype=dtype, shape=shape, offset=cursor)
        buffers.append(buffer)
        cursor = _aligned(cursor + buffer.nbytes)
    return buffers


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT

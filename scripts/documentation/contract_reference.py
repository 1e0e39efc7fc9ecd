"""The reference of the contract, from the models of `flare.contract`: fields, types, defaults, docstrings.

Docstring tools read the source only; they show neither the bounds of a field nor the comments beside the
members of an enumeration, which carry shapes and types here.
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
from enum import Enum
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

MARK = "<!-- reference: flare.contract -->"

# In the order of reading.
ROOMS = (
    *("prepared", "identity", "capacities", "schemes", "geometry", "buffers", "programs", "values"),
    *("completion", "tables", "frontend", "images"),
    *("output_format", "sampling", "oplist", "dtypes"),
)
_BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "min_length": "length ≥", "pattern": "matches"}


def reference() -> str:
    """The whole reference as Markdown: a section per module, a table per model."""
    modules = [importlib.import_module(f"flare.contract.{room}") for room in ROOMS]
    named = {cls.__name__ for module in modules for cls in classes(module)}
    return "\n\n".join(line for module in modules for line in _module(module, named))


def classes(module: ModuleType) -> list[type]:
    """Models and enumerations of a module, in the order of the source, without mere bases."""
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and issubclass(value, BaseModel | Enum)
    ]
    return [cls for cls in own if issubclass(cls, Enum) or not _is_base(cls)]


def _is_base(cls: type) -> bool:
    """Whether other models of the contract extend it; what is defined elsewhere does not count."""
    return any(sub.__module__.startswith("flare.contract") for sub in cls.__subclasses__())


def _module(module: ModuleType, named: set[str]) -> list[str]:
    lines = [f"## `{module.__name__}`", inspect.getdoc(module) or ""]
    for cls in classes(module):
        lines += [f"### {cls.__name__} {{#{cls.__name__}}}", inspect.getdoc(cls) or ""]
        lines.append(_members(cls) if issubclass(cls, Enum) else _fields(cls, named))
    return lines


def _fields(model: type[BaseModel], named: set[str]) -> str:
    rows = ["| field | type | default | bounds |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        cells = [f"`{name}`", _type(model, name, named), _default(field), _bounds(field)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _members(enum: type[Enum]) -> str:
    """Name, value, and the comment on the member's line."""
    source = inspect.getsource(enum)
    comments = dict(re.findall(r"^ {4}([A-Z0-9_]+) = .*?  # (.*)$", source, re.MULTILINE))
    rows = ["| member | value | |", "| --- | --- | --- |"]
    rows += [f"| `{m.name}` | `{m.value}` | {_cell(comments.get(m.name, ''))} |" for m in enum]
    return "\n".join(rows)


def _type(model: type[BaseModel], name: str, named: set[str]) -> str:
    """The annotation as written, names of this page as links."""
    annotations = [inspect.get_annotations(cls) for cls in model.__mro__]
    written = next(own[name] for own in annotations if name in own)
    text = html.escape(str(written)).replace("|", "&#124;")
    linked = re.sub(r"\w+", lambda w: f'<a href="#{w[0]}">{w[0]}</a>' if w[0] in named else w[0], text)
    return f"<code>{linked}</code>"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    return f"`{value.value!r}`" if isinstance(value, Enum) else f"`{value!r}`"


def _bounds(field: FieldInfo) -> str:
    found = [
        f"{sign} `{bound}`"
        for source in field.metadata
        for name, sign in _BOUNDS.items()
        if (bound := getattr(source, name, None)) is not None
    ]
    return _cell(", ".join(found))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

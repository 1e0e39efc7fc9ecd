"""Bodies and events as the clients' packages type them, taken at their word: no value is converted, no field
is unknown, and what was parsed says all that was sent."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def strictly(kind: type[T], data: Any, ours: Collection[str] = ()) -> T:
    """`data` as a `kind`. `ours` are paths of fields that the type does not have. Raises AssertionError,
    ValidationError."""
    adapter = _adapter(kind)
    parsed = adapter.validate_json(json.dumps(data), strict=True)
    assert adapter.dump_python(parsed, mode="json", exclude_unset=True, by_alias=True) == data
    unknown = {path for path in _unknown(parsed) if path not in ours}
    assert not unknown, f"{type(parsed).__name__} has no {sorted(unknown)}"
    return parsed


def _unknown(value: Any, path: str = "") -> Iterator[str]:
    """Paths of fields without a type; places in lists are `*`."""
    if isinstance(value, BaseModel):
        yield from (f"{path}{name}" for name in value.model_extra or ())
        for name in value.model_fields_set & set(type(value).model_fields):
            yield from _unknown(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list):
        for each in value:
            yield from _unknown(each, f"{path}*.")


def events_of(text: str) -> list[tuple[str | None, Any]]:
    """Names and data of the server-sent events of a body, without the `[DONE]` at the end of chats."""
    events: list[tuple[str | None, Any]] = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, _, data = block.rpartition("data: ")
        if data != "[DONE]":
            events.append((name.removeprefix("event: ").strip() or None, json.loads(data)))
    return events

"""Parts of contents, whatever a protocol calls them: blocks, items, parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flare.errors import RequestError

Part = dict[str, Any]


def kind_of(part: Any, where: str) -> str:
    """The `type` of a part. Raises RequestError naming `where` it stands."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise RequestError(f"{where} must be an object with a type", field=where)
    return kind


def string_in(part: Mapping[str, Any], name: str, where: str) -> str:
    """A field that is a string. Raises RequestError naming it."""
    value = part.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{where}.{name} must be a string", field=f"{where}.{name}")
    return value


def joined_texts(parts: Sequence[Part]) -> str | list[Part]:
    """Parts of a chat message; where all are texts, one text of them on lines of their own."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)

"""Values of tagged arguments as JSON text, written while they come where their type allows it."""

from __future__ import annotations

import json
from typing import Any


class StringValue:
    """A string, verbatim. With `newlines`, one newline at either end is not part of it."""

    def __init__(self, newlines: bool) -> None:
        self._newlines = newlines
        self._held = ""  # a newline that may be the last one
        self._begun = False

    def feed(self, text: str) -> str:
        """JSON text of more of the value."""
        opening = ""
        if not self._begun and text:
            opening, self._begun = '"', True
            if self._newlines:
                text = text.removeprefix("\n")
        text, self._held = self._held + text, ""
        if self._newlines and text.endswith("\n"):
            text, self._held = text[:-1], "\n"
        return opening + json.dumps(text, ensure_ascii=False)[1:-1]

    def finish(self) -> str:
        """The rest."""
        return '"' if self._begun else '""'


class JsonValue:
    """A number, boolean, null, list or object, known when it is complete. What is none is a string."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> str:
        """Nothing yet."""
        self._text += text
        return ""

    def finish(self) -> str:
        """The value."""
        text = self._text.strip()
        try:
            json.loads(text, parse_constant=_refuse)
        except ValueError:
            return json.dumps(text, ensure_ascii=False)
        return text


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def takes_text(schema: Any) -> bool:
    """Whether an argument of this JSON schema is a string: it may be, or nothing else is said."""
    if not isinstance(schema, dict):
        return True
    kinds = schema.get("type")
    if kinds is not None:
        return "string" in (kinds if isinstance(kinds, list) else [kinds])
    if "const" in schema or isinstance(schema.get("enum"), list):
        allowed = [schema["const"]] if "const" in schema else schema["enum"]
        return any(isinstance(value, str) for value in allowed)
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list):
            return any(takes_text(each) for each in schema[name])
    return True

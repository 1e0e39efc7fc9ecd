"""Calls that an assistant made earlier: their arguments are JSON text on the wire, an object to templates."""

from __future__ import annotations

from typing import Any

import jiter

from flare.errors import RequestError
from flare.frontend.errors import UnsupportedError
from flare.frontend.json_size import json_weight

MOST_WEIGHT = 500_000
"""Of the arguments of all calls of a conversation; see `json_weight`."""


class CallReader:
    """Reads the calls of one conversation."""

    def __init__(self) -> None:
        self._weight = 0

    def read(self, calls: Any, where: str) -> list[dict[str, Any]]:
        """The `tool_calls` of a message with objects as arguments; null is none. Raises RequestError naming
        what is wrong, UnsupportedError for calls of other things than functions."""
        if calls is None:
            return []
        if not isinstance(calls, list):
            raise RequestError(f"{where} must be a list of calls", field=where)
        return [self._read(call, f"{where}[{index}]") for index, call in enumerate(calls)]

    def _read(self, call: Any, where: str) -> dict[str, Any]:
        if not isinstance(call, dict):
            raise RequestError(f"{where} must be an object with a function", field=where)
        kind = call.get("type", "function")
        if kind != "function":
            raise UnsupportedError(
                f"{where}: calls of type {str(kind)[:64]!r} are not served", field=f"{where}.type"
            )
        if not isinstance(call.get("id"), str | None):
            raise RequestError(f"{where}.id must be a string", field=f"{where}.id")
        where = f"{where}.function"
        function = call.get("function")
        if not isinstance(function, dict):
            raise RequestError(f"{where} must be an object with a name and arguments", field=where)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise RequestError(f"{where}.name must be the name of a function", field=f"{where}.name")
        arguments = self._arguments(function.get("arguments"), f"{where}.arguments")
        return {**call, "function": {**function, "arguments": arguments}}

    def _arguments(self, given: Any, where: str) -> dict[str, Any]:
        if given is None or given == "":
            return {}
        arguments = self._parsed(given, where) if isinstance(given, str) else given
        if not isinstance(arguments, dict):
            raise RequestError(f"{where} must be a JSON object, written out in a string", field=where)
        return arguments

    def _parsed(self, text: str, where: str) -> Any:
        data = text.encode()
        self._weight += json_weight(data, MOST_WEIGHT)
        if self._weight > MOST_WEIGHT:
            raise RequestError(f"{where}: too many values in the arguments of calls", field=where)
        try:
            return jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError as error:
            raise RequestError(f"{where} is not valid JSON: {error}", field=where) from None

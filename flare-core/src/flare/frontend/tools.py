"""Tools that a request offers, checked before a template sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.errors import RequestError
from flare.frontend.errors import UnsupportedError

Tool = dict[str, Any]


def normalize_tools(tools: Sequence[Any] | None) -> list[Tool] | None:
    """`tools` of a request as they are: a template writes them out, in the order of their keys. None when
    there are none, an empty list too.

    Shape: https://platform.openai.com/docs/api-reference/chat/create. Raises RequestError naming what is
    wrong, UnsupportedError for tools that are no functions.
    """
    return [_checked(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())] or None


def _checked(tool: Any, where: str) -> Tool:
    if not isinstance(tool, dict):
        raise RequestError(f"{where} must be an object with a type and a function", field=where)
    kind = tool.get("type")
    if kind != "function":
        raise UnsupportedError(
            f"{where}: tools of type {str(kind)[:64]!r} are not served", field=f"{where}.type"
        )
    where = f"{where}.function"
    function = tool.get("function")
    if not isinstance(function, dict):
        raise RequestError(f"{where} must be an object with a name", field=where)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where}.name must be a string that is not empty", field=f"{where}.name")
    if not isinstance(function.get("description"), str | None):
        raise RequestError(f"{where}.description must be a string", field=f"{where}.description")
    if not isinstance(function.get("parameters"), dict | None):
        raise RequestError(f"{where}.parameters must be a JSON schema", field=f"{where}.parameters")
    return tool

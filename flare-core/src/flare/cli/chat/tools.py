"""Tools that are offered to the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flare.errors import RequestError


def read_tools(path: Path) -> list[dict[str, Any]]:
    """The definitions in a file, one or a list: `{"type": "function", "function": {"name", "description",
    "parameters"}}` (https://platform.openai.com/docs/guides/function-calling). Raises RequestError naming
    what is wrong, OSError for a file that cannot be read."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RequestError(f"{path} is not JSON: {error}", field="tools") from error
    tools = given if isinstance(given, list) else [given]
    if not tools:
        raise RequestError(f"{path} has no tools", field="tools")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        where = f"{path}: tool {index}"
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise RequestError(f'{where} must be {{"type": "function", "function": ...}}', field="tools")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise RequestError(f"{where} has no name", field="tools")
        if name in names:
            raise RequestError(f"{where}: {name!r} occurs twice", field="tools")
        if not isinstance(function.get("parameters"), dict | None):
            raise RequestError(f"{where}: the parameters must be a JSON schema", field="tools")
        names.add(name)
    return tools

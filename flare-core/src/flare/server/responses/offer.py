"""Tools of a Responses request: functions, free-form tools, and both of them in namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flare.errors import RequestError
from flare.server.tools import Tools, read_tools

_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""What a free-form tool takes, for the model."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as the client named it. The input of a `custom` one is text, not an object."""

    name: str
    namespace: str | None = None
    custom: bool = False

    @property
    def shown(self) -> str:
        """The name that the model sees."""
        return self.name if self.namespace is None else f"{self.namespace}__{self.name}"


@dataclass(frozen=True, slots=True)
class Offer:
    """`tools` for the model; `by_name` leads back from the names it sees. `left_out` are types of tools that
    only their own service has."""

    tools: Tools
    by_name: dict[str, Offered]
    left_out: list[str]

    def find(self, shown: str) -> Offered:
        """The tool that the model calls `shown`; one that was not offered is a function."""
        return self.by_name.get(shown) or Offered(shown)


def read_offer(tools: list[Any] | None, choice: Any, parallel: bool | None) -> Offer:
    """Raises RequestError naming the tool at fault."""
    definitions: list[dict[str, Any]] = []
    by_name: dict[str, Offered] = {}
    left_out: set[str] = set()
    for where, tool, namespace in _each(tools or []):
        kind = tool.get("type")
        if kind not in ("function", "custom"):
            left_out.add(str(kind)[:64])
            continue
        name = tool.get("name")
        if not isinstance(name, str):
            raise RequestError(f"{where}.name must be a string", field=f"{where}.name")
        offered = Offered(name, namespace, kind == "custom")
        function: dict[str, Any] = {"name": offered.shown}
        if tool.get("description") is not None:
            function["description"] = tool["description"]
        function["parameters"] = _INPUT if offered.custom else tool.get("parameters") or {"type": "object"}
        definitions.append({"type": "function", "function": function})
        by_name[offered.shown] = offered
    return Offer(read_tools(definitions, _choice(choice), parallel), by_name, sorted(left_out))


def repeated_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool that `read_offer` took, as the response repeats it: a function has every field of the standard,
    null where the request had none."""
    match tool.get("type"):
        case "function":
            return {"description": None, "parameters": None, "strict": None, **tool}
        case "namespace":
            return {**tool, "tools": [repeated_tool(each) for each in tool["tools"]]}
    return tool


def _each(tools: list[Any]) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise RequestError(f"{where} must be an object", field=where)
        if tool.get("type") != "namespace":
            yield where, tool, None
            continue
        inner, name = tool.get("tools"), tool.get("name")
        if not isinstance(inner, list) or not isinstance(name, str):
            raise RequestError(f"{where} must have a name and tools", field=where)
        for number, each in enumerate(inner):
            if not isinstance(each, dict):
                raise RequestError(f"{where}.tools[{number}] must be an object", field=where)
            yield f"{where}.tools[{number}]", each, name


def _choice(choice: Any) -> Any:
    """`tool_choice` in the shape of chat completions."""
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        name, namespace = choice.get("name"), choice.get("namespace")
        if isinstance(name, str) and isinstance(namespace, str | None):
            return {"type": "function", "name": Offered(name, namespace).shown}
    return choice

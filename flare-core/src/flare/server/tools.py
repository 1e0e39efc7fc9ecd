"""The tools that a request offers, and what it asks of their use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flare.errors import ExecutionError, RequestError
from flare.frontend.tools import normalize_tools

MOST_TOOLS = 1024
_NAME = re.compile(r"[^\s<>\"'&=]{1,128}")

_INSTRUCTION = "Answer with a call of a tool."


class ToolChoiceError(ExecutionError):
    """The output does not have the call that `tool_choice` asks for."""

    code = "tool_choice_unsatisfied"


@dataclass(frozen=True, slots=True)
class Tools:
    """`definitions` are what the template sees: `{"type": "function", "function": {"name", ...}}`; None does
    not mention tools at all. `required` are the names of which one must be called, None for no such demand.
    `answers`: whether text beside the calls is shown. `parallel`: whether more than one call may come.
    `instruction` is put behind the last message."""

    definitions: Sequence[dict[str, Any]] | None = None
    required: frozenset[str] | None = None
    answers: bool = True
    parallel: bool = True
    instruction: str | None = None

    @property
    def schemas(self) -> dict[str, Any] | None:
        """JSON schemas of the parameters, by name; None without tools."""
        if self.definitions is None:
            return None
        functions = [definition["function"] for definition in self.definitions]
        return {function["name"]: function.get("parameters") for function in functions}

    def check(self, called: Sequence[str]) -> None:
        """Raises ToolChoiceError when the calls that were completed are not those that were asked for."""
        if self.required is None:
            return
        if not any(name in self.required for name in called):
            raise ToolChoiceError(
                "the model did not complete a call of a tool, which tool_choice asks for", field="tool_choice"
            )
        if other := [name for name in called if name not in self.required]:
            raise ToolChoiceError(
                f"the model called {other[0][:100]!r}, which tool_choice does not allow", field="tool_choice"
            )


NO_TOOLS = Tools()


def read_tools(tools: Sequence[Any] | None, choice: Any, parallel: bool | None) -> Tools:
    """`tools`, `tool_choice` and `parallel_tool_calls` of a chat request
    (https://platform.openai.com/docs/api-reference/chat/create). `none` leaves the tools out of the prompt;
    a named tool is the only one in it. Raises RequestError naming the field at fault."""
    definitions = _definitions(tools)
    if not definitions:
        if choice in (None, "none", "auto"):
            return NO_TOOLS
        raise RequestError("tool_choice needs tools", field="tool_choice")
    several = parallel is not False
    if choice in (None, "auto"):
        return Tools(definitions, parallel=several)
    if choice == "none":
        return NO_TOOLS
    names = frozenset(definition["function"]["name"] for definition in definitions)
    if choice == "required":
        return Tools(definitions, names, parallel=several, instruction=_INSTRUCTION)
    name = _named(choice)
    if name not in names:
        raise RequestError(f"tool_choice: {name[:100]!r} is not one of the tools", field="tool_choice")
    only = [definition for definition in definitions if definition["function"]["name"] == name]
    return Tools(only, frozenset((name,)), answers=False, parallel=several)


def strict_tools(tools: Any) -> list[str]:
    """What is ignored of `tools`: arguments are what the model writes, whatever their schema."""
    functions = [tool.get("function", tool) for tool in tools or () if isinstance(tool, dict)]
    strict = any(isinstance(function, dict) and function.get("strict") for function in functions)
    return ["strict of tools"] if strict else []


def with_instruction(messages: Sequence[Any], instruction: str | None) -> Sequence[Any]:
    """`messages` with `instruction` behind the text of the last: the prompt before it stays what it is."""
    last = messages[-1] if instruction and messages else None
    if not isinstance(last, dict):
        return messages
    content = last.get("content")
    if isinstance(content, list):
        content = [*content, {"type": "text", "text": instruction}]
    elif isinstance(content, str):
        content = f"{content}\n\n{instruction}"
    return [*messages[:-1], {**last, "content": content}]


def _definitions(tools: Sequence[Any] | None) -> list[dict[str, Any]]:
    if tools is not None and len(tools) > MOST_TOOLS:
        raise RequestError(f"{len(tools)} tools are more than {MOST_TOOLS}", field="tools")
    definitions = normalize_tools(tools) or []
    seen: set[str] = set()
    for index, definition in enumerate(definitions):
        name, where = definition["function"]["name"], f"tools[{index}].function.name"
        if not _NAME.fullmatch(name):
            raise RequestError(
                f"{where} must have at most 128 characters, and no spaces, quotes or angle brackets",
                field=where,
            )
        if name in seen:
            raise RequestError(f"{where}: {name!r} occurs twice", field=where)
        seen.add(name)
    return definitions


def _named(choice: Any) -> str:
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if isinstance(name, str):
            return name
    raise RequestError(
        "tool_choice must be 'none', 'auto', 'required', or name a function", field="tool_choice"
    )

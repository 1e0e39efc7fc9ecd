"""The tools of the task in `loop_model`, in the shape of every protocol, and what calls of them give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Arguments = Mapping[str, Any]
_WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
_DRAW = {
    "type": "object",
    "properties": {"place": {"type": "string"}},
    "required": ["place"],
    "additionalProperties": False,
}
_DEFINED = {"weather": ("Looks out of the window.", _WEATHER), "draw": ("Draws a map.", _DRAW)}
CHAT: Any = [
    {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
    for name, (description, parameters) in _DEFINED.items()
]
RESPONSES: Any = [
    {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}
    for name, (description, parameters) in _DEFINED.items()
]
MESSAGES: Any = [
    {"name": name, "description": description, "input_schema": parameters}
    for name, (description, parameters) in _DEFINED.items()
]


class Tools:
    """Runs calls and remembers them. A map is what `draw` makes of its title."""

    def __init__(self, draw: Callable[[str], Any] = str) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._draw = draw

    def run(self, name: str, arguments: Arguments) -> Any:
        """The result of a call. Raises LookupError."""
        self.calls.append((name, dict(arguments)))
        if name == "weather":
            return f"21 degrees for {arguments['days']} days in {arguments['city']}"
        if arguments["place"] == "Nowhere":
            raise LookupError("no such place")
        return self._draw(f"a map of {arguments['place']}")

    def reported(self, name: str, arguments: Arguments) -> tuple[Any, bool]:
        """The result of a call or the text of its error, and whether it is one."""
        try:
            return self.run(name, arguments), False
        except LookupError as error:
            return f"error: {error}", True

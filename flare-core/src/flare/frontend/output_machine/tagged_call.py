"""The inside of a call of tagged arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flare.contract import CallFormat, Mark
from flare.frontend.output_machine.events import Arguments, BrokenCallError, CallEnd, CallStart, OutputEvent
from flare.frontend.output_machine.values import JsonValue, StringValue, takes_text


class TaggedCall:
    """Call number `index`. `tools` are the parameters' JSON schemas by name, which decide about the types of
    arguments. Alternates between text and the mark that ends it, one of `marks`."""

    def __init__(self, index: int, form: CallFormat, tools: Mapping[str, Any]) -> None:
        assert form.arguments is not None
        self.index = index
        self.name: str | None = None
        self.done = False
        self._tools = tools
        self._form = form
        self._literals = form.arguments
        literal = {
            field: Mark(text=text)
            for field in ("name_start", "name_end", "argument_start", "key_end", "value_start")
            if (text := getattr(form.arguments, field))
        }
        self._value_end = Mark(text=form.arguments.value_end)
        self._body_end = Mark(text=form.arguments.body_end) if form.arguments.body_end else None
        self._literal = literal
        self._text = ""
        self._key = ""
        self._count = 0
        self._value: StringValue | JsonValue | None = None
        self._state = "name_start" if "name_start" in literal else "name"

    @property
    def begun(self) -> bool:
        """Whether the beginning was reported: with the name."""
        return self.name is not None

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What may come next, besides text."""
        literal = self._literal
        behind = literal["argument_start"], self._body_end or self._form.end
        match self._state:
            case "name":
                return (literal["name_end"],) if "name_end" in literal else behind
            case "arguments":
                return behind
            case "key":
                return (literal["key_end"],)
            case "type" | "value_start":
                return (literal["value_start"],)
            case "value":
                return (self._value_end,)
            case "end":
                return (self._form.end,)
        return (literal[self._state],)

    def text(self, text: str) -> tuple[list[OutputEvent], str]:
        """Text in front of the next mark, and what of it is left: nothing. Raises BrokenCallError where only
        whitespace may stand."""
        if self._state == "value":
            assert self._value is not None
            return self._more(self._value.feed(text)), ""
        if self._state in ("name", "key", "type"):
            self._text += text
        elif text.strip():
            raise BrokenCallError(rest=text.lstrip())
        return [], ""

    def mark(self, mark: Mark) -> list[OutputEvent]:
        """The next mark. Raises BrokenCallError."""
        text, self._text = self._text.strip(), ""
        match self._state:
            case "name_start":
                self._state = "name"
            case "name":
                if not text or any(space in text for space in " \t\n"):
                    raise BrokenCallError
                self.name = text
                events: list[OutputEvent] = [CallStart(self.index, text), Arguments(self.index, "{")]
                if "name_end" in self._literal:
                    self._state = "arguments"
                    return events
                return events + self._behind(mark)
            case "arguments":
                return self._behind(mark)
            case "key":
                self._key = text
                self._state = "type" if self._literals.typed else self._before_value()
                if self._state == "value":
                    self._value = self._typed(None)
            case "type":
                if text not in ("true", "false"):
                    raise BrokenCallError
                self._value, self._state = self._typed(text == "true"), "value"
            case "value_start":
                self._value, self._state = self._typed(None), "value"
            case "value":
                assert self._value is not None
                self._state = "arguments"
                return self._more(self._value.finish())
            case "end":
                self.done = True
                return [CallEnd(self.index)]
        return []

    def _behind(self, mark: Mark) -> list[OutputEvent]:
        """An argument begins, or there are no more."""
        if mark == self._literal["argument_start"]:
            self._state = "key"
            return []
        closing: list[OutputEvent] = [Arguments(self.index, "}")]
        self._state = "end"
        return closing + (self.mark(mark) if self._body_end is None else [])

    def _before_value(self) -> str:
        return "value_start" if "value_start" in self._literal else "value"

    def _typed(self, string: bool | None) -> StringValue | JsonValue:
        self._opened = False
        if string is None:
            schema = self._tools.get(self.name or "")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            string = takes_text(properties.get(self._key) if isinstance(properties, dict) else None)
        return StringValue(self._literals.newlines) if string else JsonValue()

    def _more(self, text: str) -> list[OutputEvent]:
        """More of the value: its key first."""
        if not text:
            return []
        if not self._opened:
            self._opened = True
            comma = ", " if self._count else ""
            self._count += 1
            text = f"{comma}{json.dumps(self._key, ensure_ascii=False)}: {text}"
        return [Arguments(self.index, text)]

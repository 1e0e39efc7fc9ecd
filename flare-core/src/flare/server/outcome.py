"""What an output was when it is over: its parts in whole."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flare.frontend.output_machine import (
    Answer,
    Arguments,
    Broken,
    CallEnd,
    CallStart,
    OutputEvent,
    Reasoning,
)


def new_call_id() -> str:
    """An id for a call, in the style of the OpenAI API."""
    return f"call_{secrets.token_hex(12)}"


def new_tool_use_id() -> str:
    """An id for a call, in the style of the Messages protocol."""
    return f"toolu_{secrets.token_hex(12)}"


@dataclass(slots=True)
class Call:
    """A call of a tool. `arguments` is a JSON object once `complete`, and the beginning of one before."""

    name: str
    complete: bool = False
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """JSON text."""
        return "".join(self.pieces)

    @property
    def parsed(self) -> dict[str, Any]:
        """The arguments of a complete call as an object."""
        arguments = json.loads(self.arguments)
        assert isinstance(arguments, dict)
        return arguments


class Outcome:
    """Takes events in order, and keeps them in `events`. `calls` are those that began, by their number;
    `broken` the ones that do not follow the model's format, as they were written: they are no answer, and are
    not shown as one."""

    def __init__(self) -> None:
        self.events: list[OutputEvent] = []
        self.calls: dict[int, Call] = {}
        self.broken: list[str] = []
        self._reasoning: list[str] = []
        self._answer: list[str] = []

    def take(self, events: Iterable[OutputEvent]) -> None:
        """More of the output."""
        for event in events:
            self.events.append(event)
            match event:
                case Reasoning(text):
                    self._reasoning.append(text)
                case Answer(text):
                    self._answer.append(text)
                case CallStart(index, name):
                    self.calls[index] = Call(name)
                case Arguments(index, text):
                    self.calls[index].pieces.append(text)
                case CallEnd(index):
                    self.calls[index].complete = True
                case Broken(_, text):
                    self.broken.append(text)

    @property
    def reasoning(self) -> str:
        """All of it."""
        return "".join(self._reasoning)

    @property
    def answer(self) -> str:
        """All of it."""
        return "".join(self._answer)

"""What came of an answer, from events of a stream."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Part(Enum):
    """What a piece belongs to. The text of CALL is the name of the function that is called from here on."""

    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some more of an answer."""

    part: Part
    text: str


@dataclass
class Call:
    """One call of a tool; `arguments` are JSON text."""

    id: str
    name: str
    arguments: str = ""

    @property
    def complete(self) -> bool:
        """Whether the arguments are a JSON object."""
        try:
            return isinstance(json.loads(self.arguments or "{}"), dict)
        except ValueError:
            return False


@dataclass
class Answer:
    """`first` and `last`: when the first and the last piece came, in seconds since the request, 0 before it.
    `usage` are the server's counts of tokens, so far where it tells them with every piece. `broken` are calls
    that do not follow the model's format, as it wrote them. `finish` is why the answer ended; None as long as
    it did not, and for good when it was `stopped` from here."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str | None = None
    stopped: bool = False
    first: float = 0.0
    last: float = 0.0

    def take(self, event: dict[str, Any], seconds: float) -> list[Piece]:
        """What is new in a chunk that came `seconds` after the request. Raises LookupError, TypeError and
        AttributeError for what is no chunk."""
        self.usage = event.get("usage") or self.usage
        pieces: list[Piece] = []
        for choice in event["choices"]:
            pieces += self._delta(choice["delta"])
            self.finish = choice.get("finish_reason") or self.finish
            self.broken += choice.get("broken_tool_calls") or ()
        if pieces:
            self.first = self.first or seconds
            self.last = seconds
        return pieces

    def _delta(self, delta: dict[str, Any]) -> list[Piece]:
        pieces: list[Piece] = []
        if reasoning := _text(delta.get("reasoning_content") or delta.get("reasoning")):
            self.reasoning += reasoning
            pieces.append(Piece(Part.REASONING, reasoning))
        if text := _text(delta.get("content")):
            self.text += text
            pieces.append(Piece(Part.TEXT, text))
        for change in delta.get("tool_calls") or ():
            function = change.get("function") or {}
            if change["index"] == len(self.calls):
                name = _text(function["name"])
                self.calls.append(Call(change.get("id") or f"call_{len(self.calls)}", name))
                pieces.append(Piece(Part.CALL, name))
            if arguments := _text(function.get("arguments")):
                self.calls[change["index"]].arguments += arguments
                pieces.append(Piece(Part.ARGUMENTS, arguments))
        return pieces

    @property
    def asked(self) -> list[Call]:
        """Calls that wait for a result: the complete ones of an answer that came to its end."""
        whole = self.finish not in (None, "length") and not self.stopped
        return [call for call in self.calls if whole and call.complete]

    @property
    def message(self) -> dict[str, Any] | None:
        """The answer as a message of the conversation, with the calls that wait for a result; None when there
        is nothing to keep. Reasoning is sent back: the template decides what of it stays in the prompt."""
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments or "{}"},
            }
            for call in self.asked
        ]
        if not (self.text or self.reasoning or calls or self.finish):
            return None
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if calls:
            message["tool_calls"] = calls
        return message


def _text(value: Any) -> str:
    """A text that can be sent again: lone surrogates, which JSON can hold, become question marks."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value.encode(errors="replace").decode()

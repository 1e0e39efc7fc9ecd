"""The inside of a call that is one JSON object."""

from __future__ import annotations

import json
from typing import Any

from flare.contract import CallFormat, Mark
from flare.frontend.output_machine.events import Arguments, BrokenCallError, CallEnd, CallStart, OutputEvent

_ARGUMENTS = ("arguments", "parameters")


class JsonCall:
    """Call number `index`: `{"name": ..., "arguments": {...}}`. Arguments are passed on while they come when
    the name stands before them. A mark inside a string is text."""

    def __init__(self, index: int, form: CallFormat) -> None:
        self.index = index
        self.name: str | None = None
        self.begun = False
        self.done = False
        self._end = form.end
        self._read = ""
        self._depth = 0
        self._string: int | None = None  # where an open string begins
        self._escaped = False
        self._last: str | None = None  # the string at depth 1 that was read last
        self._key: str | None = None
        self._streaming = False  # inside the arguments, which are passed on
        self._complete = False
        self._place = 0  # of the letter that is read, in the text

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What may come next, besides text: the end, once the object is complete."""
        return (self._end,) if self._complete else ()

    def text(self, text: str) -> tuple[list[OutputEvent], str]:
        """More of the object, and what stands behind it. Raises BrokenCallError for what is no object."""
        if self._complete:
            if text.strip():
                raise BrokenCallError(rest=text.lstrip())
            return [], ""
        events: list[OutputEvent] = []
        self._place = 0
        try:
            return events, self._object(text, events)
        except BrokenCallError:
            raise BrokenCallError(events, text[self._place :]) from None

    def _object(self, text: str, events: list[OutputEvent]) -> str:
        """Read letters of the object; returns what stands behind it."""
        passed = ""
        for self._place, letter in enumerate(text):
            if not self._read and letter.isspace():
                continue
            if not self._read and letter != "{":
                raise BrokenCallError
            was = self._streaming
            now = self._step(letter)
            if now and not was:
                assert self.name is not None
                events.append(CallStart(self.index, self.name))
                self.begun = True
            if was or now:
                passed += letter
            if passed and not now:
                events.append(Arguments(self.index, passed))
                passed = ""
            if self.marks:
                events += self._whole()
                return text[self._place + 1 :]
        if passed:
            events.append(Arguments(self.index, passed))
        return ""

    def mark(self, mark: Mark) -> list[OutputEvent]:
        """The end. Raises BrokenCallError before the object is complete."""
        if not self._complete:
            raise BrokenCallError
        self.done = True
        return [CallEnd(self.index)]

    def _step(self, letter: str) -> bool:
        """Read one letter; whether what follows is inside the arguments."""
        self._read += letter
        if self._string is not None:
            self._in_string(letter)
        elif letter == '"':
            self._string = len(self._read) - 1
        elif letter in "{[":
            self._depth += 1
            if self._depth == 2 and letter == "{" and self._key in _ARGUMENTS and self.name is not None:
                self._streaming = True
        elif letter in "}]":
            self._depth -= 1
            self._streaming = self._streaming and self._depth >= 2
            self._complete = self._depth == 0
        elif self._depth == 1 and letter == ":":
            self._key = self._last
        elif self._depth == 1 and letter == ",":
            self._key = None
        return self._streaming

    def _in_string(self, letter: str) -> None:
        if self._escaped:
            self._escaped = False
        elif letter == "\\":
            self._escaped = True
        elif letter == '"':
            assert self._string is not None
            if self._depth == 1:
                self._last = _parsed(self._read[self._string :])
                if self._key == "name" and isinstance(self._last, str):
                    self.name = self._last
            self._string = None

    def _whole(self) -> list[OutputEvent]:
        """The object is complete: check it, and pass on what was not."""
        call = _parsed(self._read)
        name = call.get("name") if isinstance(call, dict) else None
        arguments: Any = next((call[key] for key in _ARGUMENTS if key in call), {}) if name else None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise BrokenCallError
        if self.begun:
            return []
        self.name, self.begun = name, True
        text = json.dumps(arguments, ensure_ascii=False)
        return [CallStart(self.index, name), Arguments(self.index, text)]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BrokenCallError from None

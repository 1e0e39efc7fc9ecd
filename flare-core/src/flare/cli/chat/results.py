"""Where the results of calls come from."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from flare.cli.chat.answer import Call
from flare.cli.chat.display import Display
from flare.cli.chat.lines import Lines
from flare.cli.chat.tool_command import ToolCommand
from flare.errors import FlareError, RequestError

_FILE = "/result"
REFUSED = "The user did not allow this call."


class Results(Protocol):
    """One way to answer calls."""

    def result(self, call: Call) -> str | None:
        """None when the user gives none: the conversation waits."""


class TypedResults:
    """The user types them."""

    def __init__(self, lines: Lines, display: Display) -> None:
        self._lines = lines
        self._display = display

    def result(self, call: Call) -> str | None:
        """Lines up to an empty one, or a file."""
        self._display.note(f"result of {call.name}? An empty line ends it; {_FILE} FILE reads a file.")
        typed: list[str] = []
        while (line := self._lines.line("| ")) is not None:
            if not typed and line.split(maxsplit=1)[:1] == [_FILE]:
                try:
                    return read_result(line)
                except (FlareError, OSError) as error:
                    self._display.error(str(error))
                    continue
            if not line:
                return "\n".join(typed)
            typed.append(line)
        return "\n".join(typed) if typed else None


class CommandResults:
    """A command of the user's makes them, after a question for each unless `always`. It is run for tools that
    were offered only, `names`."""

    def __init__(
        self, command: ToolCommand, names: Collection[str], always: bool, lines: Lines, display: Display
    ) -> None:
        self._command = command
        self._names = names
        self._always = always
        self._lines = lines
        self._display = display

    def result(self, call: Call) -> str | None:
        """What the command wrote. Raises FlareError when it cannot be run."""
        if call.name not in self._names:
            return f"There is no tool {call.name}."
        if not self._always:
            answer = self._lines.line(f"run {self._command} for {call.name}? [y]es, [n]o, [a]lways: ")
            if answer is None:
                return None
            chosen = answer.strip().lower()[:1]
            self._always = chosen == "a"
            if chosen not in ("y", "a"):
                return REFUSED
        result = self._command.run(call.name, call.arguments or "{}")
        self._display.result(call.name, result)
        return result


def read_result(line: str) -> str:
    """The text of the file that `/result FILE` names."""
    _, _, name = line.partition(" ")
    if not name.strip():
        raise RequestError(f"{_FILE} needs a file")
    path = Path(name.strip()).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8 text") from error

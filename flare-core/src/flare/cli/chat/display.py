"""What is shown of answers: their text on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import StrEnum

import typer

from flare.cli.chat.answer import Answer, Part, Piece
from flare.cli.chat.figures import Counts
from flare.cli.visible import visible, visible_line

_RESULT_LINES = 12
_CLEAR_REST = "\x1b[K"


class Reasoning(StrEnum):
    """How much of the reasoning is shown: all of it, a line that counts it, or nothing."""

    SHOW = "show"
    BRIEF = "brief"
    HIDE = "hide"


class Display:
    """Nothing of what a server sent reaches the terminal with control characters in it. Colours and lines
    that are written over are for terminals that have them (https://no-color.org)."""

    def __init__(self, reasoning: Reasoning, environment: Mapping[str, str] = os.environ) -> None:
        self.reasoning = reasoning
        terminal = sys.stderr.isatty() and environment.get("TERM") != "dumb"
        self._color = terminal and not environment.get("NO_COLOR")
        self._live = terminal
        self._shared = sys.stderr.isatty() and sys.stdout.isatty()  # one screen
        self._part: Part | None = None
        self._counted = ""
        self._written = False

    def piece(self, piece: Piece, answer: Answer) -> None:
        """Some more of `answer`."""
        part = Part.CALL if piece.part is Part.ARGUMENTS else piece.part
        if part is not self._part or piece.part is Part.CALL:
            self._leave()
            self._part = part
            if part is Part.REASONING and self.reasoning is Reasoning.SHOW:
                self._say("reasoning:", dim=True)
                self._say("\n")
        match piece.part:
            case Part.TEXT:
                self._written = True
                sys.stdout.write(visible(piece.text))
                sys.stdout.flush()
            case Part.REASONING:
                self._reason(piece.text, answer)
            case Part.CALL:
                self._say("call ", dim=True)
                self._say(visible_line(piece.text) + " ", fg=typer.colors.CYAN)
            case Part.ARGUMENTS:
                self._say(visible_line(piece.text))

    def end(self) -> None:
        """Nothing more comes of this answer."""
        if self._part is Part.TEXT or (self._written and not self._shared):
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._part = None if self._part is Part.TEXT else self._part
        self._leave()
        self._written = False

    def note(self, text: str) -> None:
        """A line about the conversation."""
        self._say(visible(text), dim=True)
        self._say("\n")

    def error(self, text: str) -> None:
        """A line about what failed."""
        self._say(f"flare: {visible(text)}", fg=typer.colors.RED)
        self._say("\n")

    def result(self, name: str, text: str) -> None:
        """What a command answered to a call: its beginning."""
        lines = text.splitlines()
        more = len(lines) - _RESULT_LINES
        shown = [*lines[:_RESULT_LINES], *([f"({more} more lines)"] if more > 0 else [])]
        self.note(f"result of {visible_line(name)}:" + "".join(f"\n  {line}" for line in shown))

    def _reason(self, text: str, answer: Answer) -> None:
        if self.reasoning is Reasoning.SHOW:
            self._say(visible(text), dim=True)
            return
        counts = Counts.of(answer)
        known = counts is not None and counts.reasoning is not None
        count = f"{counts.reasoning} tokens" if counts and known else f"{len(answer.reasoning)} characters"
        self._counted = f"reasoning: {count}, {answer.last - answer.first:.1f} s"
        if self.reasoning is Reasoning.BRIEF and self._live:
            line = self._counted[: max(1, _columns() - 1)]
            self._say("\r")
            self._say(line, dim=True)
            self._say(_CLEAR_REST)

    def _leave(self) -> None:
        """End the line of the part that was shown last."""
        part, self._part = self._part, None
        if part is Part.REASONING and self.reasoning is Reasoning.BRIEF and not self._live:
            self.note(self._counted)
        elif part is Part.REASONING and self.reasoning is Reasoning.HIDE:
            pass
        elif part is not None and (part is not Part.TEXT or self._shared):
            self._say("\n")

    def _say(self, text: str, **style: object) -> None:
        sys.stdout.flush()
        sys.stderr.write(typer.style(text, **style) if self._color and style else text)  # type: ignore[arg-type]
        sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80

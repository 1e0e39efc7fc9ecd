"""Lines that a person types, or that come from a pipe."""

from __future__ import annotations

import contextlib
import io
import sys
from types import ModuleType

from flare.errors import RequestError


class Lines:
    """Standard input. A terminal is edited in, and gets prompts."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty()
        self._readline: ModuleType | None = None
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # one line that is no text does not end it all
        if self.interactive:
            with contextlib.suppress(ImportError):
                import readline  # input() edits lines once it is imported

                self._readline = readline

    def line(self, prompt: str) -> str | None:
        """The next one, None at the end of the input. Raises RequestError for one that is not UTF-8."""
        try:
            line = self._input(prompt)
        except EOFError:
            if self.interactive:
                sys.stderr.write("\n")
            return None
        finally:
            if self._readline is not None:
                self._readline.set_startup_hook(None)
        try:
            line.encode()
        except UnicodeEncodeError:
            raise RequestError("a line of the input is not UTF-8 text") from None
        return line

    def offer(self, text: str) -> None:
        """Let the next line begin as `text`, where it can be edited; line breaks become spaces."""
        if self._readline is not None:
            insert = self._readline.insert_text
            self._readline.set_startup_hook(lambda: insert(" ".join(text.splitlines())))

    def _input(self, prompt: str) -> str:
        if not self.interactive:
            return input()
        if sys.stdout.isatty():
            return input(prompt)
        sys.stderr.write(prompt)  # standard output has answers only
        sys.stderr.flush()
        return input()

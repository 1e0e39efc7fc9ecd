"""Lines that begin with a slash."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flare.cli.chat.display import Reasoning
from flare.cli.chat.history import images_of, text_of
from flare.cli.chat.images import image_part
from flare.errors import RequestError

if TYPE_CHECKING:
    from flare.cli.chat.loop import Chat

_NONE = "none"


class Commands:
    """The commands of one chat; `ended` after `/quit`."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.ended = False
        self._table: dict[str, tuple[str, str, Callable[[str], None]]] = {
            "/help": ("", "this list", self._help),
            "/image": (
                "FILE...",
                "images of the next question, also addresses; without any: none",
                self._image,
            ),
            "/retry": ("", "another answer in the place of the last one", self._retry),
            "/undo": ("", "take back the last question and what followed", self._undo),
            "/system": ("TEXT", f"the system message; {_NONE} removes it", self._system),
            "/effort": ("LEVEL", f"how much to reason; {_NONE} is not to", self._effort),
            "/reasoning": (
                "show|brief|hide",
                "how it is shown; alone: all of the last answer's",
                self._reasoning,
            ),
            "/save": ("FILE", "write the messages as JSON", self._save),
            "/load": ("FILE", "go on from saved messages", self._load),
            "/stats": ("", "tokens of this chat", self._stats),
            "/quit": ("", "end the chat, as ctrl-D does", self._quit),
        }

    def run(self, line: str) -> None:
        """Raises RequestError for what is no command, and what the command raises."""
        name, _, rest = line.partition(" ")
        if name not in self._table:
            raise RequestError(f"there is no command {name}; /help lists them, // sends a slash")
        arguments, _, action = self._table[name]
        if rest.strip() and not arguments:
            raise RequestError(f"{name} takes nothing behind it")
        action(rest.strip())

    def _say(self, text: str) -> None:
        self._chat.display.note(text)

    def _help(self, _: str) -> None:
        for name, (arguments, meaning, _action) in self._table.items():
            self._say(f"{name} {arguments}".rstrip() + f": {meaning}")
        self._say("A question that begins with a slash is written with two.")

    def _image(self, rest: str) -> None:
        try:
            given = shlex.split(rest)
        except ValueError as error:
            raise RequestError(f"/image: {error}") from error
        if given:
            self._chat.model.require("images")
        parts = [image_part(one) for one in given]  # all or none
        self._chat.images = [*self._chat.images, *parts] if parts else []
        self._say(f"{len(self._chat.images)} images go with the next question")

    def _retry(self, _: str) -> None:
        self._chat.again()

    def _undo(self, _: str) -> None:
        question = self._chat.history.take_back()
        if question is None:
            self._say("There is no question to take back.")
            return
        self._chat.images = images_of(question)
        self._say(f"taken back: {text_of(question)}")
        self._chat.lines.offer(text_of(question))

    def _system(self, rest: str) -> None:
        if rest:
            self._chat.history.system = None if rest == _NONE else rest
        self._say(f"system message: {self._chat.history.system or _NONE}")

    def _effort(self, rest: str) -> None:
        if rest:
            self._chat.body["reasoning_effort"] = rest
        levels = self._chat.model.efforts
        known = f" (known: {', '.join(levels)})" if levels else ""
        self._say(f"effort: {self._chat.body.get('reasoning_effort', 'open')}{known}")

    def _reasoning(self, rest: str) -> None:
        if not rest:
            self._say(self._chat.last.reasoning or "The last answer has no reasoning.")
            return
        try:
            self._chat.display.reasoning = Reasoning(rest)
        except ValueError:
            raise RequestError(f"/reasoning takes {', '.join(Reasoning)}, not {rest!r}") from None

    def _save(self, rest: str) -> None:
        self._chat.history.save(_path("/save", rest))
        self._say(f"{len(self._chat.history.messages)} messages saved")

    def _load(self, rest: str) -> None:
        history = self._chat.history
        history.load(_path("/load", rest))
        self._say(f"{len(history.messages)} messages loaded" + ("; /retry answers the last" * history.waits))

    def _stats(self, _: str) -> None:
        totals, limit = self._chat.totals, self._chat.model.context
        self._say(str(totals))
        self._say(f"context: {totals.context}" + (f" of {limit}" if limit else "") + " tokens")

    def _quit(self, _: str) -> None:
        self.ended = True


def _path(command: str, rest: str) -> Path:
    if not rest:
        raise RequestError(f"{command} needs a file")
    return Path(rest).expanduser()

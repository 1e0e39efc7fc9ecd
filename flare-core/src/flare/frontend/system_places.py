"""System messages where a template takes them.

Agents put reminders of role `system` between the other messages, and begin with several of them. Templates
that know one system prompt, in front, refuse those or leave them out. A message keeps its place all the same:
were it moved to the front, every prompt would differ from the last one from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message]], str | None]

_USER = {"role": "user", "content": "question"}
_NOTES = "first note", "second note"


@dataclass(frozen=True, slots=True)
class SystemPlaces:
    """Where a template takes system messages: `anywhere`, and `several` in front."""

    anywhere: bool = True
    several: bool = True

    def fitted(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """`messages` with those in front in one where the template takes one, and later ones as the user's
        where it takes none."""
        front = 0
        while front < len(messages) and messages[front]["role"] == "system":
            front += 1
        first, later = list(messages[:front]), list(messages[front:])
        if front > 1 and not self.several:
            first = [{**first[0], "content": _together([message["content"] for message in first])}]
        if not self.anywhere:
            later = [{**m, "role": "user"} if m["role"] == "system" else m for m in later]
        return first + later


def system_places(render: Render) -> SystemPlaces:
    """The places of the template that `render` renders, None where it refuses. A template that takes no
    system message at all is left to say so itself."""
    first, second = ({"role": "system", "content": note} for note in _NOTES)
    if not _shown(render([first, _USER]), 1):
        return SystemPlaces()
    return SystemPlaces(
        anywhere=_shown(render([_USER, first, _USER]), 1)
        and _shown(render([first, _USER, second, _USER]), 2),
        several=_shown(render([first, second, _USER]), 2),
    )


def _shown(text: str | None, count: int) -> bool:
    return text is not None and all(note in text for note in _NOTES[:count])


def _together(contents: Sequence[str | list[dict[str, Any]]]) -> str | list[dict[str, Any]]:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    return [
        part
        for content in contents
        for part in ([{"type": "text", "text": content}] if isinstance(content, str) else content)
    ]

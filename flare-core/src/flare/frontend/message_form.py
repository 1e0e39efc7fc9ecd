"""What a chat template reads itself, found by asking it: lists of text parts, and the role `developer`.

A template that expects strings prints a list as Python writes it, or fails on it. Only one that makes the
same of a list with one text as of the text itself is given lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Render = Callable[[Sequence[Mapping[str, Any]]], str | None]

_FIRST, _SECOND = "first text", "second text"
_USER = {"role": "user", "content": "question"}
_CALL = {"id": "call00000", "type": "function", "function": {"name": "look", "arguments": {}}}
_BEFORE: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "system": (),
    "user": (),
    "assistant": (_USER,),
    "tool": (_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}),
}


@dataclass(frozen=True, slots=True)
class MessageForm:
    """`part_roles`: roles whose lists of texts go to the template as they are; those of others are joined.
    `developer`: whether this role has its name; otherwise it is the system's."""

    part_roles: frozenset[str] = frozenset()
    developer: bool = False


def message_form(render: Render, developer: bool) -> MessageForm:
    """The form of the template that `render` renders, None where it refuses."""
    return MessageForm(frozenset(role for role in _BEFORE if _reads_parts(render, role)), developer)


def _reads_parts(render: Render, role: str) -> bool:
    def rendered(content: Any) -> str | None:
        return render([*_BEFORE[role], {"role": role, "content": content}, *((_USER,) * (role == "system"))])

    single = rendered(_FIRST)
    if single is None or rendered([_part(_FIRST)]) != single:
        return False
    both = rendered([_part(_FIRST), _part(_SECOND)])
    return both is not None and _FIRST in both and _SECOND in both.partition(_FIRST)[2]


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}

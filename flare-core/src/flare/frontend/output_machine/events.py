"""What an output machine reports, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More text of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """Call number `index`, of the tool `name`, begins."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More text of a call's arguments, a JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is complete: its arguments are a whole JSON object."""

    index: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A call that does not follow the format, or was not finished when the output ended. `index` is that of a
    call whose `CallStart` came, else None; `text` is all of it as it was written."""

    index: int | None
    text: str


OutputEvent = Reasoning | Answer | CallStart | Arguments | CallEnd | Broken


class BrokenCallError(Exception):
    """What was read is no call of the format; `events` are those of what was read before, `rest` the text
    from the letter that broke it."""

    def __init__(self, events: Sequence[OutputEvent] = (), rest: str = "") -> None:
        super().__init__()
        self.events, self.rest = list(events), rest

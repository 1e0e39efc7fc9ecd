"""Events that follow each other, as few as can be."""

from __future__ import annotations

from collections.abc import Iterable

from flare.frontend.output_machine.events import Answer, Arguments, OutputEvent, Reasoning


def joined(events: Iterable[OutputEvent]) -> list[OutputEvent]:
    """The same events with text of one part, or of one call's arguments, in one event."""
    result: list[OutputEvent] = []
    for event in events:
        last = result[-1] if result else None
        match last, event:
            case (Reasoning(first), Reasoning(more)):
                result[-1] = Reasoning(first + more)
            case (Answer(first), Answer(more)):
                result[-1] = Answer(first + more)
            case (Arguments(index, first), Arguments(other, more)) if index == other:
                result[-1] = Arguments(index, first + more)
            case _:
                result.append(event)
    return result

"""Parts of an answer: what of a chat's output is reasoning, and what is for the reader."""

from __future__ import annotations

from dataclasses import dataclass

from flare.contract import Mark, OutputFormat
from flare.frontend.output import TextOutput
from flare.frontend.output_machine import Answer, OutputEvent, OutputMachine, Reasoning


@dataclass(slots=True)
class Parts:
    """New text of both parts; reasoning comes first."""

    reasoning: str = ""
    answer: str = ""

    def add(self, other: Parts) -> None:
        """Append another's."""
        self.reasoning += other.reasoning
        self.answer += other.answer


class PartedOutput:
    """One sequence of tokens as parts. `form` None takes all of it as the answer; `reasoning` says that the
    prompt opened it already. What `text` counts and holds is of the output as it was written."""

    def __init__(self, text: TextOutput, form: OutputFormat | None = None, reasoning: bool = False) -> None:
        self.text = text
        self._machine: OutputMachine | None = None
        self._marks: dict[int, Mark] = {}
        if form is not None and form.reasoning is not None:
            self._machine = OutputMachine(form, reasoning=reasoning)
            marks = form.reasoning.start, form.reasoning.end
            self._marks = {mark.token: mark for mark in marks if mark.token is not None}

    def feed(self, token: int) -> Parts:
        """What `token` makes certain. Must not be called once `text.stopped`."""
        mark = self._marks.get(token)
        if mark is None:
            return self._read(self.text.feed(token))
        parts = self._read(self.text.pass_over())
        if not self.text.stopped:
            assert self._machine is not None
            parts.add(_parts(self._machine.feed(mark)))
        return parts

    def finish(self) -> Parts:
        """What was held back, when no more tokens come."""
        parts = self._read(self.text.finish())
        if self._machine is not None:
            parts.add(_parts(self._machine.finish()))
        return parts

    def _read(self, text: str) -> Parts:
        if self._machine is None or not text:
            return Parts(answer=text)
        return _parts(self._machine.feed(text))


def _parts(events: list[OutputEvent]) -> Parts:
    return Parts(
        "".join(event.text for event in events if isinstance(event, Reasoning)),
        "".join(event.text for event in events if isinstance(event, Answer)),
    )

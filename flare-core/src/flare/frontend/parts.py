"""The output of one sequence as events: what of it is reasoning, answer and calls of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flare.contract import Mark, OutputFormat
from flare.frontend.output import TextOutput
from flare.frontend.output_machine import Answer, OutputEvent, OutputMachine


class PartedOutput:
    """One sequence of tokens as parts. `form` None takes all of it as the answer; `reasoning` says that the
    prompt opened it already; `tools` are the parameters' JSON schemas by name, None looks for no calls, and
    with `alone` there are none behind the beginning of an answer. What `text` counts and holds is of the
    output as it was written; `reasoning_tokens` of them are reasoning."""

    def __init__(
        self,
        text: TextOutput,
        form: OutputFormat | None = None,
        reasoning: bool = False,
        tools: Mapping[str, Any] | None = None,
        alone: bool = False,
    ) -> None:
        self.text = text
        self.reasoning_tokens = 0
        self._machine: OutputMachine | None = None
        self._marks: dict[int, Mark] = {}
        marks = [] if form is None else _marks(form, calls=tools is not None)
        if form is not None and marks:
            self._machine = OutputMachine(form, reasoning=reasoning, tools=tools, alone=alone)
            self._marks = {mark.token: mark for mark in marks if mark.token is not None}

    def feed(self, token: int) -> list[OutputEvent]:
        """What `token` makes certain. Must not be called once `text.stopped`."""
        if self._machine is not None and self._machine.reasoning:
            self.reasoning_tokens += 1
        mark = self._marks.get(token)
        if mark is None:
            return self._read(self.text.feed(token))
        events = self._read(self.text.pass_over())
        if not self.text.stopped:
            assert self._machine is not None
            events += self._machine.feed(mark)
        return events

    def finish(self) -> list[OutputEvent]:
        """What was held back, when no more tokens come."""
        events = self._read(self.text.finish())
        return events if self._machine is None else events + self._machine.finish()

    def _read(self, text: str) -> list[OutputEvent]:
        if not text:
            return []
        return [Answer(text)] if self._machine is None else self._machine.feed(text)


def _marks(form: OutputFormat, calls: bool) -> list[Mark]:
    """Every mark that may come to have a meaning."""
    marks = [] if form.reasoning is None else [form.reasoning.start, form.reasoning.end]
    if calls and form.calls is not None:
        marks += [form.calls.start, form.calls.end, *(form.calls.section or ())]
    return marks

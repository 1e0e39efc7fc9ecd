"""What marks mean: reasoning, answer, calls, in the order in which a model writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flare.contract import CallSyntax, Mark, OutputFormat
from flare.frontend.output_machine.events import Answer, Broken, BrokenCallError, OutputEvent, Reasoning
from flare.frontend.output_machine.json_call import JsonCall
from flare.frontend.output_machine.marks import MarkFinder, Piece
from flare.frontend.output_machine.tagged_call import TaggedCall


def opens_reasoning(prompt: str, form: OutputFormat) -> bool:
    """Whether a rendered prompt ends inside reasoning."""
    return form.reasoning is not None and prompt.rstrip().endswith(form.reasoning.start.text)


class OutputMachine:
    """Reads one output. `reasoning` says that the prompt opened it. `tools` are the parameters' JSON schemas
    by name; None looks for no calls, and what looks like one is text. With `alone` an answer that has begun
    is all that comes.

    Reasoning stands before everything else. A call that begins inside it ends it: models forget the mark.
    Whitespace at the ends of the reasoning, in front of the answer behind it and around calls belongs to the
    format. A mark where it has no meaning is text.
    """

    def __init__(
        self,
        form: OutputFormat,
        *,
        reasoning: bool = False,
        tools: Mapping[str, Any] | None = None,
        alone: bool = False,
    ) -> None:
        self._reasoning, self._calls = form.reasoning, form.calls if tools is not None else None
        self._tools = tools or {}
        self._alone = alone
        self._finder = MarkFinder()
        self._state = "reasoning" if reasoning else "answer"
        self._blank = True  # nothing of this part was shown
        self._held = ""  # whitespace that may stand before a mark
        self._reasoned = reasoning
        self._answered = False
        self._call: TaggedCall | JsonCall | None = None
        self._raw = ""  # of the call
        self.calls = 0

    @property
    def reasoning(self) -> bool:
        """Whether reasoning is what is read now."""
        return self._state == "reasoning"

    def feed(self, piece: Piece) -> list[OutputEvent]:
        """Events of the next piece: the text of a token, or the mark that it is."""
        if isinstance(piece, str):
            self._finder.feed(piece)
            return self._read(last=False)
        events = self._read(last=True)  # a token ends all text before it
        if piece in self._marks:
            return events + self._passed(piece)
        self._finder.feed(piece.text)
        return events + self._read(last=True)

    def finish(self) -> list[OutputEvent]:
        """The output ended. An unfinished call is `Broken`."""
        events = self._read(last=True)
        if self._state == "call":
            return [*events, self._break()]
        if self._state == "answer" and not self._blank and (held := self._take_held()):
            events.append(Answer(held))
        return events

    @property
    def _marks(self) -> tuple[Mark, ...]:
        """What has a meaning now."""
        if self._state == "call":
            return self._call.marks if self._call is not None else self._end_marks
        if self._alone and self._answered:
            return ()
        calls = () if self._calls is None else (self._calls.start,)
        if self._calls is not None and self._calls.section is not None:
            opening, closing = self._calls.section
            calls = (closing, *calls) if self._state == "section" else (opening,)
        if self._state == "reasoning":
            assert self._reasoning is not None
            return (self._reasoning.end, *calls)
        if self._reasoning is not None and not self._reasoned and not self._answered:
            return (self._reasoning.start, *calls)
        return calls

    @property
    def _end_marks(self) -> tuple[Mark, ...]:
        assert self._calls is not None
        return (self._calls.end,)

    def _read(self, last: bool) -> list[OutputEvent]:
        events: list[OutputEvent] = []
        while True:
            text, mark = self._finder.search(self._marks, last)
            if text:
                taken, rest = self._taken(text)
                events += taken
                if rest:  # read again: other marks count now
                    self._finder.give_back(rest + (mark.text if mark is not None else ""))
                    continue
            if mark is not None:
                # What stood before it may have taken its meaning.
                events += self._passed(mark) if mark in self._marks else self._taken(mark.text)[0]
            if mark is None and not text:
                return events

    def _taken(self, text: str) -> tuple[list[OutputEvent], str]:
        """What text means, and what of it was not read."""
        if self._state == "section":
            return [], ""  # between calls there is nothing
        if self._state != "call":
            return self._shown(text), ""
        events: list[OutputEvent] = []
        rest = ""
        if self._call is not None:  # else it is broken: nothing is read until its end
            try:
                events, rest = self._call.text(text)
            except BrokenCallError as error:
                self._call, events, rest = None, error.events, error.rest
        self._raw += text[: len(text) - len(rest)]
        return events, rest

    def _passed(self, mark: Mark) -> list[OutputEvent]:
        """A mark that has a meaning."""
        if self._state == "call":
            return self._in_call(mark)
        if self._calls is not None and mark == self._calls.start:
            self._leave()
            self._begin_call(mark)
        elif self._calls is not None and self._calls.section is not None and mark in self._calls.section:
            self._leave()
            self._state = "section" if mark == self._calls.section[0] else "answer"
        else:
            self._leave()
            opening = self._state == "answer"
            self._state = "reasoning" if opening else "answer"
            self._reasoned = True
        return []

    def _in_call(self, mark: Mark) -> list[OutputEvent]:
        self._raw += mark.text
        events: list[OutputEvent] = []
        if self._call is not None:
            try:
                events = self._call.mark(mark)
            except BrokenCallError:
                self._call = None
        if self._call is None and mark in self._end_marks:
            events = [self._break()]
        elif self._call is None or not self._call.done:
            return events
        self._end_call()
        return events

    def _begin_call(self, mark: Mark) -> None:
        assert self._calls is not None
        self._state, self._raw = "call", mark.text
        if self._calls.syntax is CallSyntax.JSON:
            self._call = JsonCall(self.calls, self._calls)
        else:
            self._call = TaggedCall(self.calls, self._calls, self._tools)
        self._begun = self._call

    def _end_call(self) -> None:
        self.calls += self._begun.begun
        assert self._calls is not None
        self._state = "section" if self._calls.section is not None else "answer"
        self._call = None

    def _break(self) -> Broken:
        return Broken(self._begun.index if self._begun.begun else None, self._raw)

    def _leave(self) -> None:
        """The end of reasoning or answer: whitespace before a mark belongs to the format."""
        self._held, self._blank = "", True

    def _take_held(self) -> str:
        held, self._held = self._held, ""
        return held

    def _shown(self, text: str) -> list[OutputEvent]:
        """Text of reasoning or answer, but for whitespace that may turn out to be the format's."""
        if self._blank and (self._reasoned or self.calls):
            text = text.lstrip()
        text = self._take_held() + text
        if not text:
            return []
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if self._blank and not shown:
            return []
        self._blank = False
        if self._state == "reasoning":
            return [Reasoning(shown)] if shown else []
        self._answered = self._answered or bool(shown)
        return [Answer(shown)] if shown else []

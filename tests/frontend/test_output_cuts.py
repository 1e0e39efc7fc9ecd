"""Outputs of every format, cut at every place, at every pair of places, one token at a time and not at all,
are the same events; and where they end early, nothing of a call or of reasoning is an answer.

`pytest tests/frontend/test_output_cuts.py --complete -s` cuts all of them everywhere and prints how many.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest
import tokenizers
from output_formats import FORMATS, beginning, cut, length_of, read
from output_samples import TOOLS, Sample, samples

from flare.contract import Mark, OutputFormat
from flare.frontend import PartedOutput, TextOutput, Tokenizer
from flare.frontend.output_machine import (
    Answer,
    Broken,
    CallEnd,
    CallStart,
    OutputEvent,
    Reasoning,
    joined,
)
from flare.frontend.output_machine.marks import Piece
from flare.testing.tiny_text import tiny_tokenizer

COUNT = 210  # per format
SOME = 40  # without --complete
THOROUGH = 10  # of those are cut everywhere
LONGEST, SHORT = 100, 24  # places of outputs that are cut at every pair of them, with and without --complete
SPOTS = 6  # random places and pairs of the others


class Reader:
    """Reads one output again and again."""

    def __init__(self, form: OutputFormat, sample: Sample) -> None:
        self.form, self.sample = form, sample
        self.parts = sample.written(form)
        self.length = length_of(self.parts)
        self.cuts = self.pairs = 0

    def read(self, places: Sequence[int] = ()) -> list[OutputEvent]:
        return self._events(cut(self.parts, places))

    def ended(self, length: int) -> list[OutputEvent]:
        """What its first `length` places are when nothing follows."""
        return self._events(beginning(self.parts, length))

    def _events(self, parts: Sequence[Piece]) -> list[OutputEvent]:
        tools = TOOLS if self.form.calls is not None else None
        return read(self.form, parts, tools, self.sample.opened)

    def check(self, places: Sequence[int]) -> None:
        assert self.read(places) == self.sample.events(), (places, self.parts)


@pytest.mark.parametrize("name", FORMATS)
def test_every_cut_gives_the_same_events(name: str, complete: bool) -> None:
    form, dice = FORMATS[name], random.Random(2)
    made = samples(form, COUNT if complete else SOME)
    cuts = pairs = 0
    for number, sample in enumerate(made):
        reader = Reader(form, sample)
        reader.check(())
        reader.check(range(reader.length))
        inner = range(1, reader.length)
        places = inner if complete or number < THOROUGH else dice.sample(inner, min(SPOTS, len(inner)))
        every = reader.length <= (LONGEST if complete else SHORT)
        for place in places:
            reader.check((place,))
        both = combinations(inner, 2) if every else [sorted(dice.choices(inner, k=2)) for _ in range(SPOTS)]
        for pair in both if len(inner) else ():
            reader.check(pair)
            pairs += 1
        cuts += len(places)
    print(f"\n{name}: {len(made)} outputs, {cuts:,} cuts, {pairs:,} pairs of cuts")


def with_marks(form: OutputFormat) -> tuple[Tokenizer, OutputFormat]:
    """The tiny tokenizer with tokens for marks, and the format with their ids."""
    backend = tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str())

    def mark(found: Mark) -> Mark:
        if found.token is None:
            return found
        backend.add_special_tokens([tokenizers.AddedToken(found.text, special=True)])
        return Mark(text=found.text, token=backend.token_to_id(found.text))

    changes: dict[str, object] = {}
    if form.reasoning is not None:
        ends = {"start": mark(form.reasoning.start), "end": mark(form.reasoning.end)}
        changes["reasoning"] = form.reasoning.model_copy(update=ends)
    if form.calls is not None:
        ends = {"start": mark(form.calls.start), "end": mark(form.calls.end)}
        changes["calls"] = form.calls.model_copy(update=ends)
    return Tokenizer(backend.to_str().encode()), form.model_copy(update=changes)


@pytest.mark.parametrize("name", FORMATS)
def test_one_token_at_a_time(name: str, complete: bool) -> None:
    """Letters of more than one byte are cut here too."""
    tokenizer, form = with_marks(FORMATS[name])
    plain = Tokenizer(tiny_tokenizer().to_str().encode())
    tools = TOOLS if form.calls is not None else None
    for sample in samples(form, COUNT if complete else SOME):
        output = PartedOutput(TextOutput(tokenizer), form, sample.opened, tools)
        events: list[OutputEvent] = []
        for part in sample.written(form):
            # Marks that are only spelled in a text are other tokens than the marks.
            tokens = plain.encode(part) if isinstance(part, str) else [part.token]
            events += [event for token in tokens for event in output.feed(token)]  # type: ignore[arg-type]
        assert joined([*events, *output.finish()]) == sample.events()


@pytest.mark.parametrize("name", FORMATS)
def test_an_output_that_ends_early_shows_nothing_that_is_no_answer(name: str, complete: bool) -> None:
    form = FORMATS[name]
    for sample in samples(form, COUNT if complete else THOROUGH):
        reader = Reader(form, sample)
        for length in range(reader.length):
            check_ended(reader, length)


def check_ended(reader: Reader, length: int) -> None:
    """What was read of a beginning is a beginning of what is read of the whole."""
    whole, events = reader.sample.events(), reader.ended(length)
    context = (beginning(reader.parts, length), events)
    for kind in (Reasoning, Answer):
        text, shown = text_of(kind, whole), text_of(kind, events)
        sizes = begun_mark(reader, shown)
        assert any(text.startswith(shown[: len(shown) - size].rstrip()) for size in sizes), context
    ended = [event.index for event in events if isinstance(event, CallEnd)]
    begun = [event.index for event in events if isinstance(event, CallStart)]
    broken = [event for event in events if isinstance(event, Broken)]
    assert begun == ended + [event.index for event in broken if event.index is not None], context
    if broken:
        (last,) = broken
        assert events[-1] is last
        assert reader.form.calls is not None
        assert last.text.startswith(reader.form.calls.start.text)
        text = "".join(p if isinstance(p, str) else p.text for p in beginning(reader.parts, length))
        assert text.endswith(last.text), "a call that is not finished is reported as it was written"


def begun_mark(reader: Reader, shown: str) -> list[int]:
    """Lengths of what may be the beginning of a mark at the end of a text: it could have been text."""
    form = reader.form
    marks = [] if form.reasoning is None else [form.reasoning.start, form.reasoning.end]
    if form.calls is not None:
        marks += [form.calls.start, *(form.calls.section or ())]
    texts = [mark.text for mark in marks if mark.token is None]
    return [0, *(size for text in texts for size in range(1, len(text)) if shown.endswith(text[:size]))]


def text_of(kind: type[Reasoning] | type[Answer], events: Sequence[OutputEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))

"""Outputs of every format: what they mean, and how a model writes them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from flare.contract import CallFormat, CallSyntax, Mark, OutputFormat, TaggedArguments
from flare.frontend.output_machine import Answer, Arguments, CallEnd, CallStart, OutputEvent, Reasoning
from flare.frontend.output_machine.marks import Piece

Call = tuple[str, dict[str, Any]]
# Schemas of every tool: the first letter of a parameter's name is its type.
_TYPES = {"s": "string", "n": "number", "o": "object", "l": "array", "b": "boolean", "z": ["integer", "null"]}
_NAMES = ("s", "s_2", "n", "n_2", "o", "l", "b", "z")
_SCHEMA = {"properties": {name: {"type": _TYPES[name[0]]} for name in _NAMES}}
TOOLS = dict.fromkeys(("look", "edit_file", "now"), _SCHEMA)


@dataclass(frozen=True)
class Sample:
    """An output. `opened`: the prompt opened its reasoning. `tail` is more answer behind the calls, `blank`
    stands around parts where a format ignores it."""

    answer: str = ""
    reasoning: str | None = None
    calls: Sequence[Call] = ()
    tail: str = ""
    opened: bool = False
    blank: str = "\n"
    name_last: bool = field(default=False)

    def events(self) -> list[OutputEvent]:
        """What it means."""
        found: list[OutputEvent] = []
        if self.reasoning is not None and self.reasoning.strip():
            found.append(Reasoning(self.reasoning.strip()))
        answer = self.answer if self.reasoning is None else self.answer.lstrip()
        answer = answer.rstrip() if self.calls else answer
        if answer.strip():
            found.append(Answer(answer))
        for index, (name, arguments) in enumerate(self.calls):
            written = json.dumps(arguments, ensure_ascii=False)
            found += [CallStart(index, name), Arguments(index, written), CallEnd(index)]
        if self.tail:
            found.append(Answer(self.tail))
        return found

    def written(self, form: OutputFormat) -> list[Piece]:
        """As a model writes it: texts, and marks that are tokens."""
        return _joined(self._pieces(form))

    def _pieces(self, form: OutputFormat) -> Iterator[Piece | Mark]:
        if self.reasoning is not None:
            assert form.reasoning is not None
            if not self.opened:
                yield form.reasoning.start
            yield from (self.blank, self.reasoning, self.blank, form.reasoning.end, self.blank)
        yield self.answer
        if self.calls:
            assert form.calls is not None
            yield self.blank
            opening, closing = form.calls.section or ("", "")
            yield from (opening, self.blank)
            for call in self.calls:
                yield from (form.calls.start, *self._call(form.calls, *call), form.calls.end, self.blank)
            yield closing
        yield self.tail

    def _call(self, form: CallFormat, name: str, arguments: dict[str, Any]) -> Iterator[str]:
        if form.syntax is CallSyntax.JSON:
            parts = [f'"name": {json.dumps(name)}', f'"arguments": {_json(arguments)}']
            yield self.blank + "{" + ", ".join(parts[::-1] if self.name_last else parts) + "}" + self.blank
            return
        assert form.arguments is not None
        literals = form.arguments
        blank = self.blank if literals.name_start or literals.name_end else "\n"
        yield blank if literals.name_start else ""
        yield literals.name_start + name + literals.name_end + blank
        for key, value in arguments.items():
            yield literals.argument_start + key + literals.key_end + _value(literals, value) + blank
        yield literals.body_end + (blank if literals.body_end else "")


def _value(literals: TaggedArguments, value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    if literals.newlines:
        text = f"\n{text}\n"
    kind = ("true" if isinstance(value, str) else "false") if literals.typed else ""
    return kind + literals.value_start + text + literals.value_end


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(pieces: Iterator[Piece]) -> list[Piece]:
    """Texts that follow each other as one; marks that are no tokens are text."""
    plain = (p.text if isinstance(p, Mark) and p.token is None else p for p in pieces)
    found: list[Piece] = []
    for piece in plain:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece:
            found.append(piece)
    return found


def samples(form: OutputFormat, count: int) -> list[Sample]:
    """`count` of them: what agents' models write, as far as the format has it, then random ones."""
    made = [sample for sample in _AGENTS if _fits(sample, form)]
    dice = random.Random(1)
    while len(made) < count:
        sample = _random(dice, form)
        if _fits(sample, form):
            made.append(sample)
    return made


def _fits(sample: Sample, form: OutputFormat) -> bool:
    """Whether the format can say it: it has the parts, and what ends a part does not stand in its text."""
    if (sample.calls and form.calls is None) or (sample.reasoning is not None and form.reasoning is None):
        return False
    openings = [] if form.calls is None else [form.calls.start, *(form.calls.section or ())]
    begins = [mark.text for mark in openings if mark.token is None]
    if form.reasoning is not None and sample.reasoning is not None:
        ends = begins + ([form.reasoning.end.text] if form.reasoning.end.token is None else [])
        if any(text in sample.reasoning for text in ends):
            return False
    if any(text in sample.answer + sample.tail for text in begins):
        return False
    if form.calls is None or form.calls.arguments is None:
        return True
    end = form.calls.arguments.value_end
    values = [value for _, arguments in sample.calls for value in arguments.values()]
    return not any(end in (value if isinstance(value, str) else _json(value)) for value in values)


_WORDS = (
    "a",
    "of",
    "Zürich",
    "21 °C",
    "日本",
    "🙂",
    "x < y",
    "f(x)",
    "{",
    "}",
    '"',
    "\\n",
    "'",
    "\t",
    "\n",
    "\n\n",
)
_TAGS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=look>",
    "</function>",
    "</parameter>",
)
_TAGS += (
    "<arg_key>",
    "</arg_value>",
    "</｜DSML｜invoke>",
    "<｜DSML｜tool_calls>",
    "</｜DSML｜ calls>",
    "<",
    "</",
)


def _random(dice: random.Random, form: OutputFormat) -> Sample:
    calls = []
    if form.calls is not None:
        calls = [_random_call(dice) for _ in range(dice.choice((0, 1, 1, 2)))]
    reasoned = form.reasoning is not None and dice.random() < 0.6
    answer = "" if calls and dice.random() < 0.3 else "So" + _text(dice, 4)
    return Sample(
        answer=answer,
        reasoning=_text(dice, 4) if reasoned else None,
        calls=calls,
        tail="Done." if calls and dice.random() < 0.2 else "",
        opened=reasoned and dice.random() < 0.5,
        blank=dice.choice(("", "\n", "\n", "\n\n")),
        name_last=dice.random() < 0.2,
    )


def _random_call(dice: random.Random) -> Call:
    names = dice.sample(_NAMES, dice.choice((0, 1, 1, 2)))
    return dice.choice([*TOOLS]), {name: _argument(dice, name) for name in names}


def _text(dice: random.Random, most: int) -> str:
    pool = (*_WORDS, *_WORDS, *_TAGS)
    return " ".join(dice.choice(pool) for _ in range(dice.randint(0, most)))


def _argument(dice: random.Random, name: str) -> Any:
    match name[0]:
        case "s":
            return dice.choice(("", " ")) + _text(dice, 3)
        case "n":
            return dice.choice((0, -3, 21.5, 1e30))
        case "o":
            return {"k": _text(dice, 2), "": [None, dice.choice((True, 1))]}
        case "l":
            return [_text(dice, 1) for _ in range(dice.randint(0, 2))]
        case "b":
            return dice.choice((True, False))
    return dice.choice((None, 7))


_EDIT = '@@ -1,3 +1,3 @@\n def f(a: "int") -> None:\n-\treturn a < 3  # </think>\n+\treturn a <= 3\n \n'
_SHELL = "cat > notes.md <<'EOF'\n# Notes\n\n<think>not reasoning</think>\n`\\d+` costs 3 € 🙂\nEOF\n"
_PAGE = '<div class="a">\n  <p>Grüezi &amp; hallo</p>\n</div>'
_AGENTS = (
    Sample(answer="The answer is 4."),
    Sample(reasoning="2 + 2 is 4.", answer="It is 4.\n\n* so\n* it is\n"),
    Sample(reasoning="The prompt opened this. Then", answer="Yes.", opened=True),
    Sample(reasoning="", answer="I do not reason."),
    Sample(answer="Write `</tool_call>` behind it, and `<think>` before.", reasoning="How do I say that?"),
    Sample(calls=[("now", {})]),
    Sample(
        reasoning="I look.", answer="A moment.", calls=[("look", {"s": "src/**/*.py", "n": 20, "b": False})]
    ),
    Sample(answer="Both.", calls=[("look", {"s": "a"}), ("look", {"s": "b", "z": None})]),
    Sample(reasoning="A patch.", calls=[("edit_file", {"s": "a.py", "s_2": _EDIT})], opened=True),
    Sample(calls=[("edit_file", {"s": _SHELL, "o": {"env": {"A": '"b"'}, "list": [1, [2, {}], "]}"]}})]),
    Sample(answer="A page:", calls=[("edit_file", {"s": "i.html", "s_2": _PAGE})], tail="It is written."),
    Sample(calls=[("edit_file", {"s": "\n\nlines\r\n\n", "s_2": '{"name": "now", "arguments": {}}'})]),
    Sample(calls=[("look", {"s": "3", "s_2": "true", "n": 3, "l": ["\\", "\u2028", "]"]})], name_last=True),
    Sample(reasoning="He wrote <b>, \n\nand then\n", answer="x < y && y > z", calls=[("now", {})], blank=""),
)

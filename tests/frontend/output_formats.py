"""Formats of outputs, and how tests read and cut outputs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from function_calls import FUNCTION

from flare.contract import CallFormat, CallSyntax, Mark, OutputFormat, ReasoningFormat, TaggedArguments
from flare.frontend.output_machine import OutputEvent, OutputMachine, joined
from flare.frontend.output_machine.marks import Piece

THINK = ReasoningFormat(start=Mark(text="<think>", token=1), end=Mark(text="</think>", token=2))
THINK_TEXT = ReasoningFormat(start=Mark(text="<think>"), end=Mark(text="</think>"))


def _calls(
    start: str = "<tool_call>",
    end: str = "</tool_call>",
    syntax: CallSyntax = CallSyntax.TAGGED,
    tokens: tuple[int | None, int | None] = (3, 4),
    **changes: Any,
) -> CallFormat:
    opening, closing = Mark(text=start, token=tokens[0]), Mark(text=end, token=tokens[1])
    return CallFormat(syntax=syntax, start=opening, end=closing, **changes)


def _sections(tag: str, section: str) -> CallFormat:
    """Calls with the marks of `tag`, in a section."""
    return _calls(
        start=f'<{tag}invoke name="',
        end=f"</{tag}invoke>",
        tokens=(None, None),
        section=(Mark(text=f"<{tag}{section}>"), Mark(text=f"</{tag}{section}>")),
        arguments=TaggedArguments(
            name_end='">',
            argument_start=f'<{tag}parameter name="',
            key_end='" string="',
            value_start='">',
            value_end=f"</{tag}parameter>",
            typed=True,
        ),
    )


FORMATS = {
    "function": OutputFormat(reasoning=THINK, calls=_calls(arguments=FUNCTION)),
    "function in text": OutputFormat(
        reasoning=THINK_TEXT,
        calls=_calls(tokens=(None, None), arguments=FUNCTION.model_copy(update={"newlines": False})),
    ),
    "key and value": OutputFormat(
        reasoning=THINK,
        calls=_calls(
            arguments=TaggedArguments(
                argument_start="<arg_key>",
                key_end="</arg_key>",
                value_start="<arg_value>",
                value_end="</arg_value>",
            )
        ),
    ),
    "sections": OutputFormat(reasoning=THINK, calls=_sections("｜DSML｜", "tool_calls")),
    "sections with spaces": OutputFormat(reasoning=THINK_TEXT, calls=_sections("｜DSML｜ ", "calls")),
    "json": OutputFormat(reasoning=THINK, calls=_calls(syntax=CallSyntax.JSON, tokens=(None, None))),
    "reasoning": OutputFormat(reasoning=THINK),
    "reasoning in text": OutputFormat(reasoning=THINK_TEXT),
    "plain": OutputFormat(),
}


def marks_of(form: OutputFormat) -> list[Mark]:
    """Everything that may have a meaning."""
    found = [] if form.reasoning is None else [form.reasoning.start, form.reasoning.end]
    if form.calls is not None:
        found += [form.calls.start, form.calls.end, *(form.calls.section or ())]
    return found


def read(
    form: OutputFormat, parts: Iterable[Piece], tools: Mapping[str, Any] | None, reasoning: bool = False
) -> list[OutputEvent]:
    """The events of an output, text of one kind put together."""
    machine = OutputMachine(form, reasoning=reasoning, tools=tools)
    events = [event for part in parts for event in machine.feed(part)]
    return joined([*events, *machine.finish()])


def length_of(parts: Iterable[Piece]) -> int:
    """Places of an output: letters, and marks that are tokens."""
    return sum(len(part) if isinstance(part, str) else 1 for part in parts)


def cut(parts: Sequence[Piece], places: Collection[int]) -> list[Piece]:
    """`parts` with texts cut at places counted over all of them; marks that are tokens are one place long."""
    out: list[Piece] = []
    at = 0
    for part in parts:
        if not isinstance(part, str):
            out.append(part)
            at += 1
            continue
        inner = [0, *sorted({place - at for place in places if at < place < at + len(part)}), len(part)]
        out += [part[a:b] for a, b in itertools.pairwise(inner)]
        at += len(part)
    return out


def beginning(parts: Sequence[Piece], length: int) -> list[Piece]:
    """The first `length` places."""
    out: list[Piece] = []
    for part in parts:
        if length <= 0:
            break
        out.append(part[:length] if isinstance(part, str) else part)
        length -= length_of([part])
    return out

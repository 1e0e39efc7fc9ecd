"""One grammar for a whole output: how the model writes its reasoning, then the answer that was asked for, or
calls of tools in its place.

The reasoning is free until its end mark, or until a call that begins inside it. The constraint applies to the
answer, and arguments of calls are what the model writes. All of it comes from the same `OutputFormat` that
`flare.frontend.output_machine` reads outputs with, so that what is generated and what is understood cannot
differ.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flare.grammar.calls import CallRules
from flare.grammar.constraint import Constraint
from flare.grammar.spelling import BLANK, BLANK_RULE, FreeText, Mark, TokenOf, spelled

if TYPE_CHECKING:
    from flare.contract import OutputFormat, ReasoningFormat

_ANSWER = "answer"  # the name of the constraint's grammar among the composed ones


def compose(
    constraint: Constraint,
    form: OutputFormat | None = None,
    *,
    opened: bool = False,
    token_of: TokenOf = lambda text: None,
    tools: Sequence[str] = (),
    several: bool = True,
) -> str:
    """The grammar of an output, as text for `flare.grammar.Matcher`.

    `form` is how the model writes (None: all of the output is the answer), `opened` says that the prompt ends
    inside reasoning. Otherwise the model may open it first or answer at once. With `tools`, names that may be
    called, an output is an answer or calls, `several` or one. Blanks behind reasoning and around calls belong
    to the format.
    """
    calls = None
    if form is not None and form.calls is not None and tools:
        calls = CallRules(form.calls, tools, token_of, several=several)
    final = f"@{_ANSWER}"
    rules: list[str] = []
    if calls is not None:
        final = f"({final} | {spelled(calls.mark, token_of)} {calls.rest})"
        rules += calls.rules
    if form is not None and form.reasoning is not None:
        rules += _reasoning(form.reasoning, calls, final, token_of)
        start = "reasoned" if opened else f"{spelled(form.reasoning.start, token_of)} reasoned | {final}"
    else:
        start = final
    if rules:
        rules.append(BLANK_RULE)
    output = {"lark_grammar": "\n".join([f"start: {start}", *rules])}
    answer = {"name": _ANSWER, **json.loads(constraint.grammar)}
    grammars = [output, answer, *(calls.grammars if calls is not None else ())]
    return json.dumps({"grammars": grammars}, ensure_ascii=False)


def _reasoning(form: ReasoningFormat, calls: CallRules | None, final: str, token_of: TokenOf) -> list[str]:
    """`reasoned` is everything behind the mark that begins reasoning."""
    marks: list[Mark] = [form.end] if calls is None else [form.end, calls.mark]
    thought = FreeText("thought", marks, token_of)
    reasoned = f"{thought.before(form.end)} {BLANK}? {final}"
    if calls is not None:  # models forget the mark
        reasoned += f" | {thought.before(calls.mark)} {calls.rest}"
    return [f"reasoned: {reasoned}", *thought.rules]

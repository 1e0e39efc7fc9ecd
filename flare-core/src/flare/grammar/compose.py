"""One grammar for a whole output: how the model writes its reasoning, then the answer that was asked for.

The reasoning is free until its end mark; the constraint applies to the answer. What else an output may hold
becomes one more part of the rules here, from the same `OutputFormat` that `flare.frontend.output_machine`
reads outputs with, so that what is generated and what is understood cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from flare.contract import Mark, OutputFormat, ReasoningFormat
from flare.grammar.constraint import Constraint, literal

TokenOf = Callable[[str], int | None]
"""The token that is exactly this text, of special and added tokens; None when there is none."""

_ANSWER = "answer"  # the name of the constraint's grammar among the composed ones
_BLANK = r"BLANK: /[ \t\r\n]{1,8}/"


def compose(
    constraint: Constraint,
    form: OutputFormat | None = None,
    *,
    opened: bool = False,
    token_of: TokenOf = lambda text: None,
) -> str:
    """The grammar of an output, as text for `flare.grammar.Matcher`.

    `form` is how the model writes (None: all of the output is the answer), `opened` says that the prompt ends
    inside reasoning. Otherwise the model may open it first or answer at once. Blanks behind reasoning belong
    to the format.
    """
    rules: list[str] = []
    start = f"@{_ANSWER}"
    if form is not None and form.reasoning is not None:
        rules = _reasoning(form.reasoning, token_of)
        start = f"reasoned @{_ANSWER}" if opened else f"(opening reasoned)? @{_ANSWER}"
    output = {"lark_grammar": "\n".join([f"start: {start}", *rules])}
    answer = {"name": _ANSWER, **json.loads(constraint.grammar)}
    return json.dumps({"grammars": [output, answer]}, ensure_ascii=False)


def _reasoning(form: ReasoningFormat, token_of: TokenOf) -> list[str]:
    """`opening` is the mark that begins reasoning, `reasoned` everything behind it up to the answer."""
    start, end = _token(form.start, token_of), _token(form.end, token_of)
    openings = [] if form.start.token is not None else [literal(form.start.text)]
    endings: list[str] = []
    rules: list[str] = []
    if start is not None:
        openings.append(f"<[{start}]>")
    if end is not None:
        endings.append("until_token")
        rules.append(f"until_token: /(?s:.*)/ <[{end}]>")
    if form.end.token is None:
        endings.append("until_text")
        rules.append(f"until_text[suffix={literal(form.end.text)}]: /(?s:.*)/")
    return [f"opening: {' | '.join(openings)}", f"reasoned: ({' | '.join(endings)}) BLANK?", *rules, _BLANK]


def _token(mark: Mark, token_of: TokenOf) -> int | None:
    """A mark that is text may be one token of the vocabulary as well, which to a grammar is no text."""
    return mark.token if mark.token is not None else token_of(mark.text)

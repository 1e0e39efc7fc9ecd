"""Constraints: what a client asks of an answer, as one grammar that has no part in how the model writes.

Every maker takes `where`, the field of the request that errors name, and raises GrammarError for what is too
large or has no meaning. Whether a grammar is valid and supported, `flare.grammar.checker` finds out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flare.grammar.bounds import MOST_CHOICES, check_literal, check_size, check_value
from flare.grammar.errors import GrammarError

# Between the tokens of JSON: one or two blanks, or a new line with its indentation. Unbounded whitespace lets
# a model that does not know how to go on write it until its limit.
_WHITESPACE = r"( {1,2}|\r?\n[ \t]{0,64})"
_OPTIONS = "x-guidance"  # where llguidance reads options in a schema: ours, never a client's


@dataclass(frozen=True, slots=True)
class Constraint:
    """`grammar` is one of llguidance's, as JSON text of an object; `where` the field it came from."""

    grammar: str
    where: str


def json_schema(
    schema: Any, where: str, *, whitespace: bool = True, whitespace_pattern: str | None = None
) -> Constraint:
    """JSON that is valid by `schema`, an object or true. Without `whitespace` there is none outside strings;
    `whitespace_pattern` is a regular expression for it. Keywords that are not enforced are refused later."""
    if not isinstance(schema, dict | bool):
        raise GrammarError(f"{where} must be a JSON schema, an object", field=where)
    check_value(schema, where)
    if isinstance(schema, dict) and "draft-03" in str(schema.get("$schema")):
        raise GrammarError(f"{where}: $schema: draft 3 is not supported, later drafts are", field=where)
    schema = {} if schema is True else {"not": {}} if schema is False else schema
    options: dict[str, Any] = {"lenient": False, "coerce_one_of": False, "whitespace_flexible": whitespace}
    if whitespace:
        if whitespace_pattern is not None:
            check_literal(whitespace_pattern, where)
        options["whitespace_pattern"] = _WHITESPACE if whitespace_pattern is None else whitespace_pattern
    return _constraint({"json_schema": {**schema, _OPTIONS: options}}, where)


def any_object(where: str) -> Constraint:
    """Any JSON object."""
    return json_schema({"type": "object"}, where)


def regex(pattern: str, where: str) -> Constraint:
    r"""The whole answer matches `pattern`, with ECMAScript's meaning of `\d` and `\w`. Look-around and
    back-references are refused later."""
    from llguidance import regex_to_lark

    check_literal(pattern, where)
    return _constraint({"lark_grammar": f"start: /{regex_to_lark(pattern, 'dw')}/"}, where)


def choice(choices: Sequence[str], where: str) -> Constraint:
    """One of `choices`, exactly."""
    if not choices or len(choices) > MOST_CHOICES:
        raise GrammarError(f"{where} must hold 1 to {MOST_CHOICES} strings, got {len(choices)}", field=where)
    for index, text in enumerate(choices):
        place = f"{where}[{index}]"
        check_literal(text, place)
        if not text:
            raise GrammarError(f"{place} is empty", field=place)
    return _constraint({"lark_grammar": "start: " + " | ".join(map(literal, choices))}, where)


def lark(grammar: str, where: str) -> Constraint:
    """A grammar in llguidance's variant of Lark."""
    return _constraint({"lark_grammar": grammar}, where)


def literal(text: str) -> str:
    """`text` as a Lark string."""
    return json.dumps(text, ensure_ascii=False)


def _constraint(grammar: Mapping[str, Any], where: str) -> Constraint:
    text = json.dumps(grammar, ensure_ascii=False)
    check_size(text, where)
    return Constraint(text, where)

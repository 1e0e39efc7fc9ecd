"""Calls of tools as rules of a grammar: their syntax and the tools' names. What the arguments are is left to
the model, as it is without a grammar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flare.grammar.constraint import json_schema, literal
from flare.grammar.spelling import BLANK, FreeText, Letters, Mark, TokenOf, spelled

if TYPE_CHECKING:  # in other processes grammars are made without the contract
    from flare.contract import CallFormat, TaggedArguments

_OBJECT = "call_object"  # the name of the grammar of a call that is one


class CallRules:
    """`mark` begins the calls of an output, `rest` is the rule of everything behind it. `rules` are those
    that it needs, `grammars` what they refer to. With `several` more than one call may come."""

    def __init__(
        self, form: CallFormat, names: Sequence[str], token_of: TokenOf, *, several: bool = True
    ) -> None:
        self._token_of = token_of
        self.rest = "calls_rest"
        self.rules: list[str] = []
        self.grammars: list[dict[str, Any]] = []
        if form.arguments is not None:
            inside = self._tagged(form.arguments, names)
        else:
            inside = self._object(names)
        start, end = spelled(form.start, token_of), spelled(form.end, token_of)
        more = f" ({BLANK}? {start} call_rest)*" if several else ""
        self.rules.append(f"call_rest: {inside} {BLANK}? {end}")
        if form.section is None:
            self.mark: Mark = form.start
            self.rules.append(f"{self.rest}: call_rest{more}")
        else:
            self.mark, closing = form.section
            self.rules.append(
                f"{self.rest}: {BLANK}? {start} call_rest{more} {BLANK}? {spelled(closing, token_of)}"
            )

    def _object(self, names: Sequence[str]) -> str:
        schema = {
            "type": "object",
            "properties": {
                "name": {"enum": list(names)},
                "arguments": {"type": "object"},
                "parameters": {"type": "object"},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
        self.grammars.append({"name": _OBJECT, **json.loads(json_schema(schema, "tools").grammar)})
        return f"{BLANK}? @{_OBJECT}"

    def _tagged(self, form: TaggedArguments, names: Sequence[str]) -> str:
        key_end, value_end = Letters(form.key_end), Letters(form.value_end)
        keys = FreeText("key", [key_end], self._token_of, r"/[^\r\n]+/")
        values = FreeText("value", [value_end], self._token_of)
        argument = [f"{BLANK}?", self._literal(form.argument_start), keys.before(key_end)]
        if form.typed:
            argument.append(f'{BLANK}? ("true" | "false")')
        argument += [*self._blank_literal(form.value_start), values.before(value_end)]
        self.rules += [f"argument: {' '.join(argument)}", *keys.rules, *values.rules]
        self.rules.append(f"called: {' | '.join(map(literal, names))}")
        parts = [
            *self._blank_literal(form.name_start),
            f"{BLANK}? called",
            *self._blank_literal(form.name_end),
        ]
        return " ".join([*parts, "argument*", *self._blank_literal(form.body_end)])

    def _literal(self, text: str) -> str:
        return spelled(Letters(text), self._token_of)

    def _blank_literal(self, text: str) -> list[str]:
        """Blanks and a text, unless it is not written."""
        return [f"{BLANK}? {self._literal(text)}"] if text else []

"""What is wrong with a grammar, in one line for the client."""

from __future__ import annotations

from flare.errors import RequestError

_LONGEST = 400
NO_WAY_ON = "no token of the vocabulary continues the output as its grammar demands"


# What llguidance says about a keyword without naming it.
_KEYWORDS = {
    "not present in a registry": "$ref",
    "Pointer '": "$ref",
    "circular references": "$ref",
    "Unknown format": "format",
    "patternProperty": "patternProperties",
    "float range": "minimum, maximum",
    "integer range": "minimum, maximum",
    "regex parse error": "pattern",
}


class GrammarError(RequestError):
    """A constraint cannot be served: not valid, not supported, or beyond the bounds."""

    code = "invalid_grammar"


def in_one_line(message: str) -> str:
    """A message of llguidance without the state of its parser, cut to what a person reads."""
    if message.startswith("NoExtension"):
        return NO_WAY_ON
    said = message.split("<state>", 1)[0].split("<non-verbose", 1)[0]
    line = " ".join(said.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def of_keyword(problem: str) -> str:
    """A problem of a schema, with the keyword at fault in front when the message does not have it."""
    for said, keyword in _KEYWORDS.items():
        if said in problem:
            return f"{keyword}: {problem}"
    return problem

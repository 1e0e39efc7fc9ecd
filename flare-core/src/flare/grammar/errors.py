"""What is wrong with a grammar, in one line for the client."""

from __future__ import annotations

from flare.errors import RequestError

_LONGEST = 400
NO_WAY_ON = "no token of the vocabulary continues the output as its grammar demands"


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

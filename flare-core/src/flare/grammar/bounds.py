"""How large a constraint may be, and how much work it may make: checked before and while it is compiled.

A schema of a few hundred bytes can describe a grammar that takes minutes to compile or to walk. Sizes are
bounded where they are read, compilation in the process of `flare.grammar.check` by time and memory, and every
step of a matcher by llguidance's counters.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from flare.grammar.errors import GrammarError

if TYPE_CHECKING:
    from llguidance import LLParserLimits

MOST_BYTES = 128 << 10
"""Of the whole constraint as text: an agent's largest tool schemas have some 30 KB."""
MOST_LEVELS = 64
"""Objects and lists inside each other; llguidance reads about twice as many."""
LONGEST_LITERAL = 4096
"""Characters of one name, value or pattern: a forced text of a megabyte takes seconds of a step."""
MOST_CHOICES = 10_000

COMPILE_SECONDS = 1.0
"""Processor time of one check."""
COMPILE_BYTES = 512 << 20
"""Memory of the checking process beyond what it starts with."""

_ANNOTATIONS = ("description", "title", "$comment", "$id", "$schema", "$ref")


@cache
def parser_limits() -> LLParserLimits:
    """Bounds of one compilation and of one step. A step stays below some 20 ms."""
    from llguidance import LLParserLimits

    return LLParserLimits(verbose_errors=False)


def check_size(text: str, where: str) -> None:
    """Raises GrammarError, naming `where`, for more text than a constraint may have."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        raise GrammarError(f"{where} has {size} bytes, at most {MOST_BYTES} are taken", field=where)


def check_literal(text: str, where: str) -> None:
    """Raises GrammarError for a literal that is too long, or that is no Unicode text."""
    if len(text) > LONGEST_LITERAL:
        raise GrammarError(
            f"{where} holds a text of {len(text)} characters, at most {LONGEST_LITERAL} are taken",
            field=where,
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise GrammarError(f"{where} holds half of a surrogate pair, which is no text", field=where)


def check_value(value: Any, where: str) -> None:
    """Raises GrammarError for a JSON value that is too large, nested too deep, or holds a literal that is too
    long. Prose that describes a schema may be long."""
    rest: list[tuple[Any, int, bool]] = [(value, 0, False)]
    size = 0
    while rest:
        item, level, prose = rest.pop()
        size += 1 + (len(item) if isinstance(item, str | dict | list) else 0)
        if size > MOST_BYTES:  # before anything is made of it
            raise GrammarError(f"{where} is too large: at most {MOST_BYTES} bytes are taken", field=where)
        if level > MOST_LEVELS:
            raise GrammarError(f"{where} is nested deeper than {MOST_LEVELS} levels", field=where)
        if isinstance(item, str):
            if not prose:
                check_literal(item, where)
        elif isinstance(item, dict):
            for key, inner in item.items():
                check_literal(key, where)
                rest.append((inner, level + 1, key in _ANNOTATIONS))
        elif isinstance(item, list):
            rest.extend((inner, level + 1, False) for inner in item)

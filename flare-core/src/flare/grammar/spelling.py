"""How texts that divide an output are written: as letters, as a token of their own, or either way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from flare.grammar.constraint import literal

TokenOf = Callable[[str], int | None]
"""The token that is exactly this text, of special and added tokens; None when there is none."""


class Mark(Protocol):
    """See `flare.contract.Mark`."""

    @property
    def text(self) -> str: ...
    @property
    def token(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Letters:
    """A mark that is text."""

    text: str
    token: int | None = None


BLANK = "BLANK"
BLANK_RULE = r"BLANK: /[ \t\r\n]{1,8}/"
"""Whitespace around marks belongs to the format."""


def spelled(mark: Mark, token_of: TokenOf) -> str:
    """A rule's part for `mark`. A mark that is text may be one token of the vocabulary as well, which to a
    grammar is no text."""
    return _either(
        [literal(mark.text)] if mark.token is None else [],
        [] if (token := _token(mark, token_of)) is None else [f"<[{token}]>"],
    )


class FreeText:
    """Text of the regular expression `text` up to the first of `marks`. `name` begins the names of its
    rules, which `rules` has."""

    def __init__(self, name: str, marks: Sequence[Mark], token_of: TokenOf, text: str = r"/(?s:.*)/") -> None:
        self._free = f"{name.upper()}_FREE"
        self._token_of = token_of
        letters = [literal(mark.text) for mark in marks if mark.token is None]
        any_text, marked = f"{name.upper()}_ANY", f"{name.upper()}_MARKED"
        self.rules = [f"{self._free}: {text}"]
        if letters:
            self.rules = [
                rf"{any_text}: /(?s:.*)/",
                f"{marked}: {any_text} {_either(letters)} {any_text}",
                f"{self._free}: {text} & ~{marked}",
            ]

    def before(self, mark: Mark) -> str:
        """A rule's part for text in front of `mark`, and the mark."""
        name = f"{self._free}_{len(self.rules)}"
        letters = []
        if mark.token is None:
            # One lexeme: text may end like the beginning of its mark.
            self.rules.append(f"{name}: {self._free} {literal(mark.text)}")
            letters = [name]
        token = _token(mark, self._token_of)
        return _either(letters, [] if token is None else [f"{self._free} <[{token}]>"])


def _token(mark: Mark, token_of: TokenOf) -> int | None:
    return mark.token if mark.token is not None else token_of(mark.text)


def _either(*ways: Sequence[str]) -> str:
    return f"({' | '.join(way for some in ways for way in some)})"

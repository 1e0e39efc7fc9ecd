"""Tokens of a text that begins as an earlier one did: only what follows is tokenized.

A control token parts a text. Tokenizers look for control tokens first and treat what lies between them by
itself, so the tokens before one do not depend on what follows it. The next turn of a conversation begins with
the text of the one before: tokenizing it costs what was appended.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from flare.frontend.cuts import exact_cuts
from flare.frontend.errors import TooManyTokens

_SHORT = 2048  # characters; fewer are tokenized in less time than they are looked up
_MOST_CHARACTERS = 16 << 20


class _Part(NamedTuple):
    """A control token: the characters and the tokens before it."""

    characters: int
    tokens: int


class _Known(NamedTuple):
    """A text and its tokens. `cuts` has, by place in the text, how many tokens end exactly there; 0 where
    none do."""

    text: str
    tokens: NDArray[np.uint32]
    parts: tuple[_Part, ...]
    cuts: Mapping[int, int]


_NOTHING = _Known("", np.empty(0, np.uint32), (_Part(0, 0),), {})


class PrefixTokens:
    """Texts of at most `most_characters` together, the least recently used go first. Safe to use from several
    threads.

    `encode`: a text's encoding, with offsets, and no tokens that are not in the text.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        encode: Callable[[str], Any],
        most_characters: int = _MOST_CHARACTERS,
    ) -> None:
        self._encode = encode
        added = backend.get_added_tokens_decoder()
        # Others look at, or take, characters beside them.
        self._contents = {
            token: entry.content
            for token, entry in added.items()
            if entry.special and not (entry.normalized or entry.lstrip or entry.rstrip or entry.single_word)
        }
        self._dividers = np.array(sorted(self._contents), np.uint32)
        # Of two control tokens that begin alike the longer one is taken: both must be in a common beginning.
        self._longest = max((len(entry.content) for entry in added.values()), default=0)
        self._most = most_characters
        self._characters = 0
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def encode(self, text: str, marks: Sequence[int], most: int | None) -> tuple[list[int], tuple[int, ...]]:
        """Token ids, and the numbers of leading tokens that end exactly at the characters `marks`. Raises
        TooManyTokens for more than `most` tokens."""
        known, part = self._beginning(text, marks)
        encoding = self._encode(text[part.characters :] if part.characters else text)
        count = part.tokens + len(encoding)
        if most is not None and count > most:
            raise TooManyTokens(count, most)
        rest: list[int] = encoding.ids
        tokens = known.tokens[: part.tokens].tolist() + rest
        keeps = _SHORT <= len(text) <= self._most and len(self._dividers) > 0
        pairs = encoding.offsets if marks or keeps else ()
        offsets = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * len(pairs)).reshape(-1, 2)
        cuts = {mark: known.cuts[mark] for mark in marks if mark < part.characters}
        cuts |= _cuts(offsets, part, [mark for mark in marks if mark >= part.characters])
        if keeps:
            added = np.array(rest, np.uint32)
            parts = (*_before(known, part), *self._parts(text, added, offsets, part))
            if parts:
                made = np.concatenate([known.tokens[: part.tokens], added])
                self._keep(_Known(text, made, parts, cuts), known, part)
        return tokens, tuple(sorted({cut for cut in cuts.values() if 0 < cut < count}))

    def _beginning(self, text: str, marks: Sequence[int]) -> tuple[_Known, _Part]:
        """What is known of the longest beginning of `text` that ends before a control token."""
        best, found = _NOTHING, _NOTHING.parts[0]
        with self._lock:
            for known in reversed(self._known.values()):
                above = bisect_right(known.parts, found.characters, key=lambda part: part.characters)
                place = self._shared(text, known, above)
                if place is None:
                    continue
                part = known.parts[place]
                if all(mark in known.cuts for mark in marks if mark < part.characters):
                    best, found = known, part
            if best is not _NOTHING:
                self._known.move_to_end(best.text)
        return best, found

    def _shared(self, text: str, known: _Known, first: int) -> int | None:
        """The last part, from `first` on, that `text` and a known text have alike; None without one."""
        below, end = first - 1, len(known.parts)
        while end - below > 1:
            # The first one is asked at once: texts of other conversations share none.
            middle = first if below < first else (below + end) // 2
            size = known.parts[middle].characters + self._longest
            if size <= len(known.text) and text.startswith(known.text[:size]):
                below = middle
            else:
                end = middle
        return below if below >= first else None

    def _parts(
        self, text: str, tokens: NDArray[np.uint32], offsets: NDArray[np.int64], behind: _Part
    ) -> list[_Part]:
        found = []
        for number in np.flatnonzero(np.isin(tokens, self._dividers)).tolist():
            characters = behind.characters + int(offsets[number, 0])
            if text.startswith(self._contents[int(tokens[number])], characters):
                found.append(_Part(characters, behind.tokens + number))
        return found

    def _keep(self, made: _Known, known: _Known, part: _Part) -> None:
        with self._lock:
            if part == known.parts[-1]:  # all that is of use in it is in the new one, too
                self._drop(known.text)
            self._drop(made.text)
            self._known[made.text] = made
            self._characters += len(made.text)
            while self._characters > self._most:
                self._drop(next(iter(self._known)))

    def _drop(self, text: str) -> None:
        if self._known.pop(text, None) is not None:
            self._characters -= len(text)


def _before(known: _Known, part: _Part) -> tuple[_Part, ...]:
    count = bisect_right(known.parts, part.characters - 1, key=lambda one: one.characters)
    return known.parts[:count]


def _cuts(offsets: NDArray[np.int64], part: _Part, marks: Sequence[int]) -> dict[int, int]:
    """By mark at or behind `part`, how many tokens end there, counted from the start of the text."""
    found = exact_cuts(offsets, [mark - part.characters for mark in marks])
    cuts = {place + part.characters: count and part.tokens + count for place, count in found.items()}
    if part.characters in cuts:
        cuts[part.characters] = part.tokens  # a control token begins there
    return cuts

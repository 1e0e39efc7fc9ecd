"""Outputs that follow grammars, each a walk with a number: begun, asked for masks, forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from flare.grammar.errors import GrammarError
from flare.grammar.matcher import Mask, Matcher
from flare.grammar.questions import Start
from flare.grammar.vocabulary import Vocabulary

_REMEMBERED = 32  # grammars, of the last requests


class Walks(Protocol):
    """What the engine asks of the grammars of its requests. `tokens` are always those that an output has
    gained since the walk was last told. One thread calls `begin`, and one everything else."""

    def begin(self, walk: int, grammar: str, stop_tokens: Sequence[int]) -> None:
        """Compile a grammar for an output at its beginning. Raises a FlareError."""

    def fill(self, walk: int, tokens: Sequence[int], mask: Mask) -> None:
        """See `Matcher.fill`."""

    def fill_drafts(self, walk: int, tokens: Sequence[int], drafts: Sequence[int], masks: Mask) -> None:
        """See `Matcher.fill_drafts`; `masks` is [drafts + 1, words]."""

    def admissible(self, walk: int, tokens: Sequence[int], drafts: Sequence[int]) -> int:
        """See `Matcher.admissible`."""

    def forget(self, walk: int) -> None:
        """The output ended, or never began."""

    def close(self) -> None:
        """End everything, also a `begin` on its way."""


class LocalWalks:
    """In this process. The vocabulary, which `start` describes, is made with the first grammar, and holds the
    interpreter lock."""

    def __init__(self, start: Callable[[], Start]) -> None:
        self._start = start
        self._vocabulary: Vocabulary | None = None
        self._grammars: OrderedDict[str, Matcher] = OrderedDict()  # touched by `begin` only
        self._matchers: dict[int, Matcher] = {}

    def begin(self, walk: int, grammar: str, stop_tokens: Sequence[int]) -> None:
        """See `Walks`."""
        if self._vocabulary is None:
            start = self._start()
            self._vocabulary = Vocabulary(start.tokenizer, start.vocab_size, start.end_tokens)
        known = self._grammars.get(grammar)
        if known is None:
            known = self._grammars[grammar] = Matcher.compile(self._vocabulary, grammar)
            if len(self._grammars) > _REMEMBERED:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(grammar)
        self._matchers[walk] = known.copy(stop_tokens)

    def fill(self, walk: int, tokens: Sequence[int], mask: Mask) -> None:
        """See `Walks`."""
        self._behind(walk, tokens).fill(mask)

    def fill_drafts(self, walk: int, tokens: Sequence[int], drafts: Sequence[int], masks: Mask) -> None:
        """See `Walks`."""
        self._behind(walk, tokens).fill_drafts(masks, drafts)

    def admissible(self, walk: int, tokens: Sequence[int], drafts: Sequence[int]) -> int:
        """See `Walks`."""
        return self._behind(walk, tokens).admissible(drafts)

    def forget(self, walk: int) -> None:
        """See `Walks`."""
        self._matchers.pop(walk, None)

    def close(self) -> None:
        """See `Walks`."""

    def _behind(self, walk: int, tokens: Sequence[int]) -> Matcher:
        matcher = self._matchers.get(walk)
        if matcher is None:
            raise GrammarError("where the output stands in its grammar is not known any more")
        matcher.advance(tokens)
        return matcher

"""Where one output stands in its grammar, and which tokens may come next."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from flare.grammar.bounds import parser_limits
from flare.grammar.errors import NO_WAY_ON, GrammarError, in_one_line
from flare.grammar.vocabulary import Vocabulary

Mask = NDArray[np.int32]


class Matcher:
    """Follows one output, of which it has seen `position` tokens: `advance` with every new token, then `fill`
    masks of what may come next.

    A mask is i32[words], bit 1 admits a token, low bit first. End tokens, and the other `stop_tokens` of a
    request, are admitted exactly where the grammar accepts the output; when nothing may follow, they alone.
    """

    def __init__(self, vocabulary: Vocabulary, matcher: LLMatcher, stop_tokens: Collection[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self.position = 0
        self._stops = [token for token in stop_tokens if token not in vocabulary.end_tokens]
        size = -(-int(vocabulary.tokens.vocab_size) // 32)
        self._whole = np.zeros(size, np.int32)  # of every token that the tokenizer has
        self._last = np.uint32(0xFFFFFFFF >> (-vocabulary.vocab_size % 32))  # bits of the last word in use

    @classmethod
    def compile(cls, vocabulary: Vocabulary, grammar: str) -> Matcher:
        """At the beginning of an output. The interpreter lock is free meanwhile. Raises GrammarError."""
        matcher = LLMatcher(vocabulary.tokens, grammar, log_level=0, limits=parser_limits())
        if matcher.is_error():
            raise GrammarError(in_one_line(matcher.get_error()))
        return cls(vocabulary, matcher)

    def copy(self, stop_tokens: Collection[int] = ()) -> Matcher:
        """Another output of the same grammar, at its beginning."""
        assert not self.position, "a copy of an output that has begun"
        return Matcher(self._vocabulary, self._matcher.deep_copy(), stop_tokens)

    @property
    def accepts(self) -> bool:
        """Whether the output may end here."""
        return bool(self._matcher.is_accepting())

    def advance(self, tokens: Sequence[int]) -> None:
        """The output goes on with `tokens`. Raises GrammarError when that is not of the grammar, or takes too
        much work; the matcher is of no use then."""
        if tokens and not self._matcher.consume_tokens(list(tokens)):
            raise GrammarError(self._problem())
        self.position += len(tokens)

    def fill(self, mask: Mask) -> None:
        """Write what may come next into `mask`. Raises GrammarError when nothing may, or for too much
        work."""
        if not self._fill(mask):
            raise GrammarError(NO_WAY_ON)

    def fill_drafts(self, masks: NDArray[np.int32], drafts: Sequence[int]) -> None:
        """Write what may come next, and then behind each of `drafts`, into `masks` [drafts + 1, words]; the
        drafts must be `admissible`. Afterwards the matcher stands where it stood. Raises as `fill` does;
        where nothing may come behind a draft, its mask stays: the draft may be wrong."""
        self.fill(masks[0])
        taken = 0
        for place, token in enumerate(drafts, 1):
            if not self._matcher.consume_token(token):
                raise GrammarError(self._problem())
            taken = place
            before = masks[place].copy()
            if not self._fill(masks[place]):
                masks[place] = before
                break
        if taken:
            self._matcher.rollback(taken)

    def _fill(self, mask: Mask) -> bool:
        whole = self._whole
        self._matcher.unsafe_compute_mask_ptr(whole.ctypes.data, whole.nbytes)
        if self._matcher.is_error():
            raise GrammarError(self._problem())
        mask[:] = whole[: len(mask)]
        mask.view(np.uint32)[-1] &= self._last
        if self._stops:
            accepts = self.accepts
            for token in self._stops:
                _set(mask, token, accepts)
        return bool(mask.any())

    def admissible(self, drafts: Sequence[int]) -> int:
        """How many of `drafts` may follow one behind the other. None does behind a token that ends."""
        stops = self._vocabulary.end_tokens.union(self._stops)
        length = next((i for i, token in enumerate(drafts) if token in stops), len(drafts))
        return int(self._matcher.validate_tokens(list(drafts[:length]))) if length else 0

    def _problem(self) -> str:
        return in_one_line(self._matcher.get_error())


def _set(mask: Mask, token: int, admitted: bool) -> None:
    word, bit = divmod(token, 32)
    words = mask.view(np.uint32)
    if admitted:
        words[word] |= np.uint32(1 << bit)
    else:
        words[word] &= ~np.uint32(1 << bit)

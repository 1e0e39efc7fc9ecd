"""A model's vocabulary as grammars see it: the bytes of every token, and which tokens end an output."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLTokenizer

from flare.errors import CoreError


class Vocabulary:
    """Built from a `tokenizer.json`: for 150 000 tokens it takes half a second, during which the interpreter
    lock is held, and some 100 MB. `words` is ceil(V / 32), the length of a mask.

    Raises CoreError for a tokenizer whose tokens have no bytes of their own.
    """

    def __init__(self, tokenizer: bytes, vocab_size: int, end_tokens: Sequence[int]) -> None:
        text = tokenizer.decode()
        ends = list(end_tokens)
        try:
            try:
                self.tokens = LLTokenizer(text, n_vocab=vocab_size, eos_token=ends)
            except ValueError:  # it has tokens that the model has no logits for
                self.tokens = LLTokenizer(text, eos_token=ends)
        except ValueError as error:
            raise CoreError(
                f"grammars cannot be used with this tokenizer: {error}", field="frontend.tokenizer_asset"
            ) from None
        self.vocab_size = vocab_size
        self.words = -(-vocab_size // 32)
        self.end_tokens = frozenset(ends)

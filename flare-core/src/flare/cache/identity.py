"""What a prefix is: chained digests over blocks of tokens, and what conditions them.

Two prefixes are the same when their tokens are, and when the same inputs besides tokens (images) enter at the
same places. A digest chain names whole blocks, so a prefix of any length is found by comparing one digest and
fewer than BLOCK_TOKENS tokens. Blocks are independent of physical pages.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BLOCK_TOKENS = 64

PrefixKey = tuple[bytes, bytes]
"""Digest of the whole blocks before, and the exact content of the partial block behind them."""


@dataclass(frozen=True, slots=True)
class Conditioning:
    """An input that is not a token: `identity` names its content, `position` the first token it affects."""

    position: int
    identity: bytes


class PrefixIdentity:
    """The identity of every prefix of one growing token sequence.

    `root` separates sequences that never share state (another core, another cache salt). `conditioning` is
    ascending by position; an entry belongs to every prefix longer than its position.
    """

    def __init__(
        self, root: bytes, tokens: Sequence[int] = (), conditioning: Iterable[Conditioning] = ()
    ) -> None:
        self._tokens = array("i")
        self._chain = [hashlib.blake2b(root, digest_size=16).digest()]
        self._conditioning = sorted(conditioning, key=lambda entry: entry.position)
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        """Every token so far."""
        return self._tokens

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens`."""
        self._tokens.extend(tokens)
        for block in range(len(self._chain) - 1, len(self._tokens) // BLOCK_TOKENS):
            start = block * BLOCK_TOKENS
            content = self._content(start, start + BLOCK_TOKENS)
            self._chain.append(hashlib.blake2b(self._chain[block] + content, digest_size=16).digest())

    def key(self, length: int) -> PrefixKey:
        """The identity of the first `length` tokens."""
        assert 0 <= length <= len(self._tokens)
        blocks = length // BLOCK_TOKENS
        return self._chain[blocks], self._content(blocks * BLOCK_TOKENS, length)

    def digest(self, blocks: int) -> bytes:
        """The chained digest of the first `blocks` whole blocks."""
        return self._chain[blocks]

    def _content(self, start: int, end: int) -> bytes:
        # Positions are relative to the block and a marker is no token, so contents cannot be confused.
        content = self._tokens[start:end].tobytes()
        for entry in self._conditioning:
            if start <= entry.position < end:
                mark = array("i", (-1, entry.position - start, len(entry.identity))).tobytes()
                content += mark + entry.identity
        return content

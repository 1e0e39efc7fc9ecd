"""Where known prefixes end: found by identity, the longest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from flare.cache.identity import BLOCK_TOKENS, PrefixIdentity, PrefixKey

T = TypeVar("T")


class Endpoints(Generic[T]):
    """Something per prefix, by `PrefixIdentity.key`. Finding the longest prefix costs a look per block of the
    text and one per token of the blocks that something ends in, however many there are."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, dict[bytes, T]] = {}

    def __iter__(self) -> Iterator[T]:
        for ends in self._blocks.values():
            yield from ends.values()

    def add(self, key: PrefixKey, value: T) -> None:
        """Put `value` at `key`, instead of what is there."""
        digest, tail = key
        self._blocks.setdefault(digest, {})[tail] = value

    def get(self, key: PrefixKey) -> T | None:
        """What is at exactly `key`."""
        digest, tail = key
        return self._blocks.get(digest, {}).get(tail)

    def remove(self, key: PrefixKey) -> None:
        """Take out what is at `key`."""
        digest, tail = key
        ends = self._blocks[digest]
        del ends[tail]
        if not ends:
            del self._blocks[digest]

    def longest(self, identity: PrefixIdentity, limit: int, above: int = 0) -> T | None:
        """What is at the longest prefix of `identity` with more than `above` and at most `limit` tokens."""
        for blocks in range(limit // BLOCK_TOKENS, above // BLOCK_TOKENS - 1, -1):
            ends = self._blocks.get(identity.digest(blocks))
            if ends is None:
                continue
            start = blocks * BLOCK_TOKENS
            last, first = min(limit, start + BLOCK_TOKENS - 1), max(start, above + 1)
            for length in range(last, first - 1, -1):
                if (found := ends.get(identity.key(length)[1])) is not None:
                    return found
        return None

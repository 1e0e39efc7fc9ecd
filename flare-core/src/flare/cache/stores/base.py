"""What a store keeps and how it is asked: one interface for host memory and disk.

A store holds published checkpoints as bytes, named by what they are a prefix of. It knows blocks (pages, tail
pages, rows) of fixed size and nothing about what is in them. `lookup` reads an index in memory and may be
called by a latency-bound thread; `put` and whatever a `Reading` returns take as long as their bytes do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from flare.cache.identity import PrefixIdentity, PrefixKey

NAME_BYTES = 16

Bytes = NDArray[np.uint8]


def prefix_name(key: PrefixKey, tokens: int) -> bytes:
    """The name of a prefix of so many tokens: 16 bytes that stand for its whole identity."""
    digest, content = key
    name = hashlib.blake2b(tokens.to_bytes(8, "little"), digest_size=NAME_BYTES, person=b"flare-prefix")
    name.update(digest + content)
    return name.digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored checkpoint of `tokens` tokens. `pages` name its complete pages in token order, each by the
    prefix that ends with it, so that checkpoints of one history share them; with `tail` a partial page
    follows."""

    key: PrefixKey
    tokens: int
    pages: tuple[bytes, ...]
    tail: bool

    @property
    def name(self) -> bytes:
        """See `prefix_name`."""
        return prefix_name(self.key, self.tokens)


def describe(identity: PrefixIdentity, tokens: int, page_tokens: int) -> Entry:
    """The entry of the state after the first `tokens` tokens of `identity`."""
    complete, rest = divmod(tokens, page_tokens)
    ends = range(page_tokens, complete * page_tokens + 1, page_tokens)
    pages = tuple(prefix_name(identity.key(end), end) for end in ends)
    return Entry(identity.key(tokens), tokens, pages, rest > 0)


class StoreFault(Exception):
    """Stored bytes are gone or not what was written. What was at fault is no longer offered."""


class Source(Protocol):
    """The bytes of one checkpoint. Arrays that were handed out never change afterwards."""

    def page(self, index: int) -> Bytes:
        """Complete page `index` in token order, u8[page bytes]."""

    def tail(self) -> Bytes:
        """The partial page, u8[page bytes]; only of entries that have one."""

    def row(self) -> Bytes:
        """The snapshot row, u8[row bytes]."""


class Reading(Source, Protocol):
    """An entry that stays until closed. Its methods return verified bytes or raise StoreFault."""

    def close(self) -> None:
        """Let the entry go. Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(slots=True)
class StoreCounts:
    """What happened since start. `hits`: restorations that began, counted by whoever begins them; `refused`:
    checkpoints that did not fit; `failed`: writes that the system refused; `faults`: entries found damaged or
    gone when they were read."""

    hits: int = 0
    stored: int = 0
    evicted: int = 0
    refused: int = 0
    failed: int = 0
    faults: int = 0


class Store(Protocol):
    """A bounded store of checkpoints of one core; the least recently used go first. Thread-safe."""

    name: str
    capacity: int  # bytes
    counts: StoreCounts

    @property
    def used(self) -> int:
        """Bytes held, what is being written included."""

    def __len__(self) -> int:
        """Entries."""

    def lookup(self, identity: PrefixIdentity, limit: int, above: int = 0) -> Entry | None:
        """The longest entry that is a prefix of `identity`'s first `limit` tokens and has more than `above`
        tokens."""

    def reading(self, entry: Entry) -> Reading | None:
        """Keep `entry` until the result is closed; None when it is not there any more."""

    def put(self, entry: Entry, source: Source) -> bool:
        """Keep a copy of a checkpoint; whether the store has it now. Only pages that it lacks are asked of
        `source`; what `source` raises is passed on, with nothing kept."""

    def close(self) -> None:
        """Release everything. Idempotent."""

"""Checkpoints whose every byte follows from the tokens, so that whoever reads one knows what it must be."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from flare.cache import PrefixIdentity
from flare.cache.stores import CoreState, Entry, Source, describe

CORE = CoreState(identity="c" * 64, page_tokens=4, page_bytes=256, row_bytes=192)


def content(label: str, tokens: Sequence[int], nbytes: int) -> np.ndarray:
    """u8[nbytes]"""
    seed = hashlib.sha256(f"{label} {list(tokens)}".encode()).digest()
    return np.frombuffer((seed * (nbytes // len(seed) + 1))[:nbytes], np.uint8).copy()


class Checkpoint:
    """See `Source`. `reads` counts pages that were asked for."""

    def __init__(self, tokens: Sequence[int], core: CoreState = CORE) -> None:
        self.tokens = tuple(tokens)
        self.core = core
        self.identity = PrefixIdentity(b"root", self.tokens)
        self.entry: Entry = describe(self.identity, len(self.tokens), core.page_tokens)
        self.reads = 0

    def page(self, index: int) -> np.ndarray:
        self.reads += 1
        return content("page", self.tokens[: (index + 1) * self.core.page_tokens], self.core.page_bytes)

    def tail(self) -> np.ndarray:
        assert self.entry.tail
        return content("tail", self.tokens, self.core.page_bytes)

    def row(self) -> np.ndarray:
        return content("row", self.tokens, self.core.row_bytes)

    def check(self, source: Source) -> None:
        """`source` gives exactly these bytes."""
        for index in range(len(self.entry.pages)):
            assert np.array_equal(source.page(index), self.page(index)), f"page {index}"
        if self.entry.tail:
            assert np.array_equal(source.tail(), self.tail())
        assert np.array_equal(source.row(), self.row())


def found(store, tokens: Sequence[int], above: int = 0) -> int:
    """Length of the longest stored prefix; 0 for none."""
    entry = store.lookup(PrefixIdentity(b"root", tokens), len(tokens), above)
    return 0 if entry is None else entry.tokens


def verify(store, tokens: Sequence[int]) -> None:
    """The checkpoint of exactly `tokens` is there, whole and right."""
    checkpoint = Checkpoint(tokens)
    entry = store.lookup(checkpoint.identity, len(tokens))
    assert entry == checkpoint.entry
    with store.reading(entry) as reading:
        checkpoint.check(reading)

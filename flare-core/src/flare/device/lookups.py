"""Lookups: which rows of a table the tokens of a history need. A core names one and gives its parameters.

`ngram` hashes the n-grams that end with a token, for n from 2 to a longest one, by several hash functions
each (Svenstrup et al., "Hash Embeddings for Efficient Word Representations", 2017; Huang et al.,
"Over-Tokenized Transformer", 2025). A separator token, such as an end of text, ends n-grams: the separator
stands for everything before it, and for what precedes the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flare.contract import TableResource
from flare.errors import CoreError

Ints = NDArray[np.int64]


class Lookup(Protocol):
    """`context` tokens before a token, and itself, decide about its `rows_per_token` rows."""

    context: int
    rows_per_token: int

    def rows(self, before: Sequence[int], tokens: Sequence[int]) -> Ints:
        """Row numbers [len(tokens), rows_per_token] of `tokens`; `before` are up to `context` tokens of the
        same history that precede them, fewer only at its beginning."""


class NgramLookup:
    """Parameters: longest n, hash functions h for each n, the separator, n multipliers, then (n - 1) * h
    moduli and as many offsets, by n and then by function.

    Row of the n-gram t[0] .. t[n-1], t[0] the last token: the xor over j of `t[j] * multiplier[j]` modulo
    2^64 as a signed number, modulo the function's modulus, plus its offset.
    """

    def __init__(self, parameters: Sequence[int]) -> None:
        longest, functions, separator, *rest = parameters
        pairs = (longest - 1) * functions
        if longest < 2 or functions < 1 or len(rest) != longest + 2 * pairs:
            raise ValueError(f"{len(parameters)} parameters for n-grams up to {longest}")
        self.context, self.rows_per_token = longest - 1, pairs
        self.functions, self.separator = functions, separator
        numbers = np.array(rest, dtype=np.int64)
        self.multipliers = numbers[:longest]
        self.moduli, self.offsets = numbers[longest : longest + pairs], numbers[longest + pairs :]
        if pairs and (self.moduli.min() < 1 or self.offsets.min() < 0):
            raise ValueError("a modulus below 1 or an offset below 0")

    @property
    def end(self) -> int:
        """One more than the largest row number there can be."""
        return int((self.moduli + self.offsets).max())

    def rows(self, before: Sequence[int], tokens: Sequence[int]) -> Ints:
        """See `Lookup`."""
        context, count = self.context, len(tokens)
        missing = context - len(before)
        history = np.array([*(self.separator,) * missing, *before, *tokens], dtype=np.int64)
        mixed = history[context:] * self.multipliers[0]
        ended = np.zeros(count, dtype=bool)
        found = np.empty((count, self.rows_per_token), dtype=np.int64)
        for shift in range(1, context + 1):
            earlier = history[context - shift : context - shift + count]
            ended = ended | (earlier == self.separator)
            # An overflow is meant: the hash is modulo 2^64.
            mixed = mixed ^ (np.where(ended, self.separator, earlier) * self.multipliers[shift])
            part = slice((shift - 1) * self.functions, shift * self.functions)
            found[:, part] = np.mod(mixed[:, None], self.moduli[part]) + self.offsets[part]
        return found


_LOOKUPS: dict[str, Callable[[Sequence[int]], NgramLookup]] = {"ngram": NgramLookup}


def lookup_of(table: TableResource) -> Lookup:
    """The lookup of a table. Raises CoreError for a name or parameters that this engine does not know, and
    for one that leaves the table."""
    field = f"tables.{table.name}"
    make: Any = _LOOKUPS.get(table.lookup)
    if make is None:
        raise CoreError(
            f"table {table.name}: lookup {table.lookup!r} is unknown to this engine, which has "
            f"{', '.join(sorted(_LOOKUPS))}",
            field=field,
        )
    try:
        lookup: NgramLookup = make(table.parameters)
    except (ValueError, OverflowError) as error:
        raise CoreError(f"table {table.name}: lookup {table.lookup}: {error}", field=field) from error
    if lookup.end > table.rows:
        raise CoreError(f"table {table.name}: rows up to {lookup.end}, it has {table.rows}", field=field)
    return lookup

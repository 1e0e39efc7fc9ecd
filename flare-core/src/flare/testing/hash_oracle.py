"""What the hash model must say, computed from the tokens alone: no pages, rows, rings, slots or programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from flare.device.sim_ops import mix
from flare.engine.packing import continued_seed

_MASK = (1 << 64) - 1
GRAM_SEPARATOR = 2
GRAM_MULTIPLIERS = (0x5851F42D4C957F2D, 0x14057B7EF767814F, 0x2545F4914F6CDD1D)
"""Of the table's n-grams, up to three tokens long, two hash functions for each length."""


def gram_moduli(rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Moduli and offsets of the four hash functions: quarters of a table of `rows`."""
    part = rows // 4
    return tuple(part - place for place in range(4)), tuple(part * place for place in range(4))


@dataclass(frozen=True, slots=True)
class HashShape:
    """Extents of the hash model's state, in tokens: `group` per grouped entry and `overlap` before each,
    sliding `window`, convolution `taps`, token `history`; rows of the `table` of n-grams, 0 for none."""

    group: int = 4
    overlap: int = 2
    window: int = 5
    taps: int = 3
    history: int = 3
    table: int = 0


class History:
    """Tokens, everything that was ever derived from each of them, and the hidden after the last."""

    def __init__(self, shape: HashShape) -> None:
        self.shape = shape
        self.tokens = [-1] * shape.history
        self.entries: list[int] = []
        self.inputs = [(0, 0)] * shape.taps
        self.pages = self.groups = self.recurrent = 0

    def append(self, token: int, extra: int = 0) -> None:
        shape, place = self.shape, len(self.entries)
        entry = mix(token * 0x10001 + place + self._looked_up(token) + extra)
        self.entries.append(entry)
        self.tokens.append(token)
        self.inputs.append((entry ^ 0x8CB92BA72F3D8DD7, entry ^ 0x8CB92BA72F3D8DD8))
        self.pages += entry * (mix(place) | 1)
        if (place + 1) % shape.group == 0:
            self.groups += mix(self._opened(place + 1 - shape.group)) * (mix(place // shape.group) | 1)
        self.window = sum(entry ^ 0x2545F4914F6CDD1D for entry in self.entries[-shape.window :])
        taps = self.inputs[-shape.taps :]
        self.conv = _fold([first for first, _ in taps] + [second for _, second in taps])
        self.gram = _fold(self.tokens[-shape.history :])
        self.recurrent = mix(self.recurrent + self.window + 3 * self.conv + 5 * self.gram)

    def hidden(self) -> int:
        count = len(self.entries)
        counters = count, sum(self.tokens[self.shape.history :])
        opened = self._opened(count - count % self.shape.group)
        rows = _fold([opened, self.window, self.conv, self.gram, self.recurrent, *counters])
        return mix(self.pages * 0xAF251AF3B0F025B5 + self.groups * 0xC6BC279692B5C323 + rows)

    def _looked_up(self, token: int) -> int:
        """The sum of the rows that a token and the two before it need."""
        if not self.shape.table:
            return 0
        pair, triple = self._grams(token)
        moduli, offsets = gram_moduli(self.shape.table)
        rows = [
            gram % m + o for gram, m, o in zip((pair, pair, triple, triple), moduli, offsets, strict=True)
        ]
        return sum(mix(row) for row in rows)

    def _grams(self, token: int) -> Iterator[int]:
        mixed, ended = token * GRAM_MULTIPLIERS[0], False
        for back, multiplier in enumerate(GRAM_MULTIPLIERS[1:], 1):
            earlier = self.tokens[-back] if back <= len(self.entries) else GRAM_SEPARATOR
            ended = ended or earlier == GRAM_SEPARATOR
            mixed ^= (GRAM_SEPARATOR if ended else earlier) * multiplier
            mixed = (mixed + (1 << 63)) % (1 << 64) - (1 << 63)  # signed, of 64 bits
            yield mixed

    def _opened(self, start: int) -> int:
        return _fold([e ^ 0x9FB21C651E98DF25 for e in self.entries[max(start - self.shape.overlap, 0) :]])


def oracle(
    prompt: Sequence[int],
    seed: int,
    max_tokens: int,
    stops: Sequence[int] = (),
    min_tokens: int = 0,
    vocab_size: int = 97,
    preempted: Sequence[int] = (),
    shape: HashShape = HashShape(),
    extra: Callable[[int], int] = lambda place: 0,
    admits: Callable[[tuple[int, ...]], Collection[int]] | None = None,
) -> list[int]:
    """The output of one request. `max_tokens` is bounded by the context already. It was preempted after each
    number of output tokens in `preempted`: its draws went on under another seed. `extra` is what the token at
    a place brings besides itself (`flare.testing.hash_images`); `admits` what may follow an output."""
    history = History(shape)
    for place, token in enumerate(prompt):
        history.append(token, extra(place))
    counts = sum(mix(token) for token in prompt)
    key, start = seed, 0
    output: list[int] = []
    while True:
        if len(output) in preempted:
            key, start = continued_seed(seed, len(output)), len(output)
        token = mix(history.hidden() ^ mix((counts ^ key) & _MASK) ^ mix(len(output) - start)) % vocab_size
        admitted = range(vocab_size) if admits is None else admits(tuple(output))
        while token not in admitted or (token in stops and len(output) < min_tokens):
            token = (token + 1) % vocab_size
        output.append(token)
        if token in stops or len(output) >= max_tokens:
            return output
        history.append(token, extra(len(history.entries)))
        counts += mix(token ^ 0x5851F42D4C957F2D)


def _fold(values: Sequence[int]) -> int:
    folded = 0
    for value in values:
        folded = (folded * 0xD1342543DE82EF95 + value) & _MASK
    return folded

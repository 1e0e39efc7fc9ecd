"""State of every kind on the sim device: eight schemes hold hashes of the history, and all are read back.

Layouts are those that `flare.contract.geometry` derives. A sequence keeps fields in pages (`entries`,
`groups`), in its first row (`window`, `open`, `history`), and in one row per verified input, its columns
(`recurrent`, `conv`, `counter`, `hidden`), of which one is live. Without speculation the first row is the
only column. Arithmetic is modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flare.contract import FinishCode
from flare.device.sim_ops import Array, mix, mix_array, operator

MASK = (1 << 64) - 1
_FOLD = 0xD1342543DE82EF95
_ENTRIES, _GROUPS = 0xAF251AF3B0F025B5, 0xC6BC279692B5C323
WINDOW, OPEN, _CONV = 0x2545F4914F6CDD1D, 0x9FB21C651E98DF25, 0x8CB92BA72F3D8DD7


class Fields(NamedTuple):
    """Views of all state. Pages: entries u64[P, page_tokens], groups u64[P, groups]. Rows: window u64[R, w],
    open u64[R, group + overlap], history i32[R, h], recurrent u64[R], conv u64[R, channels, taps],
    counter i64[R, 2], hidden u64[R]."""

    entries: Array
    groups: Array
    window: Array
    open: Array
    history: Array
    recurrent: Array
    conv: Array
    counter: Array
    hidden: Array

    @property
    def group(self) -> int:
        """Tokens per group."""
        return int(self.entries.shape[1] // self.groups.shape[1])

    def write(self, table: Array, place: int, walk: Walk) -> None:
        """Put what `walk` made of the token at `place` into its page."""
        within = place % self.entries.shape[1]
        page = table[place // self.entries.shape[1]]
        if page <= 0:
            raise RuntimeError(f"token {place} goes to page {page}; number 0 is for padding")
        self.entries[page, within] = walk.entry
        if (place + 1) % walk.group == 0:
            self.groups[page, within // walk.group] = walk.complete

    def sums(self, table: Array, count: int) -> tuple[int, int]:
        """Weighted sums of the entries and complete groups of the first `count` tokens, read from pages."""
        pages = table[: -(-count // self.entries.shape[1])]
        groups = count // self.group
        total = int(self.entries[pages].reshape(-1)[:count] @ weights(count))
        return total, int(self.groups[pages].reshape(-1)[:groups] @ weights(groups)) if groups else 0

    def running_sums(self, table: Array, start: int, end: int) -> tuple[list[int], list[int]]:
        """`sums` after each of the tokens start..end-1."""
        pages = table[: -(-end // self.entries.shape[1])]
        entries = np.cumsum(self.entries[pages].reshape(-1)[:end] * weights(end))
        if end < self.group:
            return entries[start:].tolist(), [0] * (end - start)
        count = end // self.group
        groups = [0, *np.cumsum(self.groups[pages].reshape(-1)[:count] * weights(count)).tolist()]
        return entries[start:].tolist(), [groups[place // self.group] for place in range(start + 1, end + 1)]


class Walk:
    """One sequence on its way: loaded from its first row and live column, then advanced token by token.

    After a step `entry` is the token's page entry and `complete` that of the group it ended, if it did.
    """

    __slots__ = (
        "_gram",
        "_rolling",
        "_taps",
        "complete",
        "conv",
        "count",
        "counter",
        "entry",
        "group",
        "history",
        "open",
        "recurrent",
        "window",
    )

    def __init__(self, fields: Fields, row: int, column: int, count: int) -> None:
        if row <= 0:
            raise RuntimeError(f"a sequence in row {row}; number 0 is for padding")
        self.count = count
        self.group = fields.group
        self.window: list[int] = fields.window[row].tolist()
        self.open: list[int] = fields.open[row].tolist()
        self.history: list[int] = fields.history[row].tolist()
        self.recurrent = int(fields.recurrent[column])
        self.conv: list[list[int]] = fields.conv[column].tolist()
        self.counter: list[int] = fields.counter[column].tolist()
        self._rolling = sum(self.window[:count])

    def step(self, token: int, extra: int = 0) -> None:
        """Consume one token and what else is known about it."""
        place = self.count
        self.entry = entry = mix(token * 0x10001 + place + extra)
        window, at = self.window, place % len(self.window)
        if place >= len(window):
            self._rolling -= window[at]
        window[at] = entry ^ WINDOW
        self._rolling += window[at]
        self.open[place % len(self.open)] = entry ^ OPEN
        self._taps = 0
        for index, channel in enumerate(self.conv):
            del channel[0]
            channel.append(entry ^ (_CONV + index))
            self._taps = _fold(channel, self._taps)
        del self.history[0]
        self.history.append(token)
        self._gram = _fold(self.history)
        self.counter[0] += 1
        self.counter[1] += token
        self.recurrent = mix(self.recurrent + self._rolling + 3 * self._taps + 5 * self._gram)
        self.count = place + 1
        if self.count % self.group == 0:
            self.complete = mix(self._fold_open(self.count - self.group))

    def digest(self) -> int:
        """Everything in rows, hashed."""
        opened = self._fold_open(self.count - self.count % self.group)
        return _fold((opened, self._rolling, self._taps, self._gram, self.recurrent, *self.counter))

    def store_row(self, fields: Fields, row: int) -> None:
        """Write what the first row holds."""
        fields.window[row] = self.window
        fields.open[row] = self.open
        fields.history[row] = self.history

    def store_column(self, fields: Fields, column: int) -> None:
        """Write what a column holds, but for the hidden."""
        fields.recurrent[column] = self.recurrent
        fields.conv[column] = self.conv
        fields.counter[column] = self.counter

    def _fold_open(self, start: int) -> int:
        """Fold the group that starts at token `start`, behind the overlap before it."""
        opened, extent = self.open, len(self.open)
        start = max(start - (extent - self.group), 0)
        return _fold([opened[place % extent] for place in range(start, self.count)])


def hidden_of(entries: int, groups: int, digest: int) -> int:
    """The hidden, from the sums over pages and the digest of the rows."""
    return mix(entries * _ENTRIES + groups * _GROUPS + digest)


def _fold(values: Iterable[int], folded: int = 0) -> int:
    """An order-dependent hash that is linear in each value: cheap, and any one wrong value shows."""
    for value in values:
        folded = (folded * _FOLD + value) & MASK
    return folded


_weights: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)


def weights(count: int) -> NDArray[np.uint64]:
    """The first `count` weights of the sums over pages: odd, so that no wrong entry vanishes."""
    global _weights
    if count > len(_weights):
        _weights = mix_array(np.arange(max(2 * count, 256), dtype=np.uint64)) | np.uint64(1)
    return _weights[:count]


_FIELDS = "Tensor(c!) entries, Tensor(d!) groups, Tensor(e!) window, Tensor(f!) open, Tensor(g!) history, "
_FIELDS += "Tensor(h!) recurrent, Tensor(i!) conv, Tensor(j!) counter, Tensor(k!) hidden"


@operator(
    "sim::advance(Tensor tokens, Tensor? extra, Tensor? query_start, Tensor slots, Tensor live_rows, "
    f"Tensor finished, Tensor tables, Tensor(a!) consumed, Tensor(b!) columns, {_FIELDS}) -> ()"
)
def advance(
    tokens: Array,
    extra: Array | None,
    query_start: Array | None,
    slots: Array,
    live_rows: Array,
    finished: Array,
    tables: Array,
    consumed: Array,
    columns: Array,
    *views: Array,
) -> None:
    """Append every lane's tokens to all of its state, then hash all of it into its hidden.

    tokens i32[N]; extra u64[N], or None; query_start i32[L+1], or None for one
    token per lane; slots, live_rows i32[L]; per slot: finished, consumed, columns i32[S], tables i32[S, MP];
    `Fields`. The first row becomes the live column. A finished slot is left alone. Raises RuntimeError for a
    write to the null page or row.
    """
    fields = Fields(*views)
    added = [0] * len(tokens) if extra is None else extra.tolist()
    starts = range(len(slots) + 1) if query_start is None else query_start.tolist()
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        if slot < 0 or finished[slot] != FinishCode.LIVE:
            continue
        table = tables[slot]
        walk = Walk(fields, row, row + int(columns[slot]), int(consumed[slot]))
        for at in range(starts[lane], starts[lane + 1]):
            walk.step(int(tokens[at]), added[at])
            fields.write(table, walk.count - 1, walk)
        walk.store_row(fields, row)
        walk.store_column(fields, row)
        consumed[slot], columns[slot] = walk.count, 0
        fields.hidden[row] = hidden_of(*fields.sums(table, walk.count), walk.digest())

"""Operators of a complete speculative program: proposal, verification, acceptance and commit.

Verification consumes every input of a lane as if all were accepted. What it writes where nothing is committed
yet (page entries behind the consumed ones, one column per input) is harmless when an input is rejected; the
first row is written by the commit, with accepted inputs only.
"""

from __future__ import annotations

import numpy as np

from flare.contract import METADATA_FIELDS, FinishCode, Record, Status
from flare.device.sim_ops import Array, counted, drawn_token, forbidden, mix, operator, signed
from flare.device.sim_sequence import OPEN, WINDOW, Fields, Walk, hidden_of, weights


@operator("sim::append_pages(Tensor(a!) tables, Tensor slots, Tensor updates) -> ()")
def append_pages(tables: Array, slots: Array, updates: Array) -> None:
    """tables[slots[i], updates[i, u, 0]] = updates[i, u, 1] for updates i32[L, U, 2]"""
    for slot, pairs in zip(slots.tolist(), updates.tolist(), strict=True):
        for logical, physical in pairs:
            if slot >= 0 and logical >= 0:
                tables[slot, logical] = physical


_DRAW = "Tensor seeds, Tensor prompt_hashes, Tensor min_tokens, Tensor stops"


@operator(
    "sim::propose(Tensor pending, Tensor lengths, int depth, int vocab_size, int agreement, Tensor slots, "
    "Tensor live_rows, Tensor finished, Tensor tables, Tensor consumed, Tensor columns, Tensor generated, "
    f"{_DRAW}, Tensor entries, Tensor groups, Tensor window, Tensor open, Tensor history, Tensor recurrent, "
    "Tensor conv, Tensor counter, Tensor hidden) -> Tensor"
)
def propose(
    pending: Array,
    lengths: Array,
    depth: int,
    vocab_size: int,
    agreement: int,
    slots: Array,
    live_rows: Array,
    finished: Array,
    tables: Array,
    consumed: Array,
    columns: Array,
    generated: Array,
    seeds: Array,
    prompt_hashes: Array,
    min_tokens: Array,
    stops: Array,
    *views: Array,
) -> Array:
    """i32[L, depth] draft tokens, one fewer than the lane's length of them: each what would be drawn after
    the drafts before it, but by hash in 256 - `agreement` of 256 cases another token. Writes nothing."""
    fields = Fields(*views)
    proposals = np.full((len(slots), depth), -1, dtype=np.int32)
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        if slot < 0 or lengths[lane] < 2 or finished[slot] != FinishCode.LIVE:
            continue
        count, first = int(consumed[slot]), int(generated[slot])
        walk = Walk(fields, row, row + int(columns[slot]), count)
        entries, groups = fields.sums(tables[slot], count)
        weight = weights(count + depth)
        token, counts, seed = int(pending[lane]), int(prompt_hashes[slot]), int(seeds[slot])
        for index in range(int(lengths[lane]) - 1):
            walk.step(token)
            entries += walk.entry * int(weight[walk.count - 1])
            if walk.count % walk.group == 0:
                groups += walk.complete * int(weight[walk.count // walk.group - 1])
            drawn = first + index
            barred = set(stops[slot].tolist()) if drawn < min_tokens[slot] else set()
            hidden = hidden_of(entries, groups, walk.digest())
            token = drawn_token(hidden, counts, seed, drawn, barred, vocab_size)
            if mix(seed ^ mix(drawn)) % 256 >= agreement:
                token = (token + 1) % vocab_size
            counts += counted(token, output=True)
            proposals[lane, index] = token
    return proposals


@operator(
    "sim::verification_inputs(Tensor pending, Tensor? proposals, Tensor lengths, int rows, int stride) "
    "-> (Tensor, Tensor)"
)
def verification_inputs(
    pending: Array, proposals: Array | None, lengths: Array, rows: int, stride: int
) -> tuple[Array, Array]:
    """i32[rows] inputs and i32[L] the row where each lane starts: its pending token, then as many proposals
    as its length has room for. Lane l starts at l * `stride`, or right behind the one before for stride 0.
    Raises RuntimeError when a lane does not fit."""
    tokens = np.full(rows, -1, dtype=np.int32)
    starts = np.zeros(len(lengths), dtype=np.int32)
    cursor = 0
    for lane, length in enumerate(lengths.tolist()):
        start = lane * stride if stride else cursor
        cursor = start + length
        if cursor > rows or (stride and length > stride):
            raise RuntimeError(f"lane {lane} has {length} inputs at row {start} of {rows}")
        starts[lane] = start
        if length:
            tokens[start] = pending[lane]
        if length > 1 and proposals is not None:
            tokens[start + 1 : cursor] = proposals[lane, : length - 1]
    return tokens, starts


@operator(
    "sim::verify(Tensor tokens, Tensor? extra, Tensor starts, Tensor lengths, Tensor slots, "
    "Tensor live_rows, Tensor finished, Tensor tables, Tensor consumed, Tensor columns, "
    "Tensor(a!) entries, Tensor(b!) groups, Tensor window, Tensor open, Tensor history, "
    "Tensor(c!) recurrent, Tensor(d!) conv, Tensor(e!) counter, Tensor(f!) hidden) -> ()"
)
def verify(
    tokens: Array,
    extra: Array | None,
    starts: Array,
    lengths: Array,
    slots: Array,
    live_rows: Array,
    finished: Array,
    tables: Array,
    consumed: Array,
    columns: Array,
    *views: Array,
) -> None:
    """Run every lane's inputs: page entries behind what is consumed, and column j of the slot for input j.

    tokens i32[P]; extra u64[P], or None; starts, lengths, slots, live_rows i32[L]; per slot:
    finished, consumed, columns i32[S], tables i32[S, MP]; `Fields`. Nothing else changes. A finished slot is
    left alone. Raises RuntimeError when a lane lacks proposals, or for a write to the null page or row.
    """
    fields = Fields(*views)
    added = [0] * len(tokens) if extra is None else extra.tolist()
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        if slot < 0 or finished[slot] != FinishCode.LIVE:
            continue
        table, count, start = tables[slot], int(consumed[slot]), int(starts[lane])
        walk = Walk(fields, row, row + int(columns[slot]), count)
        digests: list[int] = []
        for index in range(int(lengths[lane])):
            token, column = int(tokens[start + index]), row + index
            if token < 0:
                raise RuntimeError(f"slot {slot} has {index} inputs of {lengths[lane]}")
            walk.step(token, added[start + index])
            fields.write(table, walk.count - 1, walk)
            walk.store_column(fields, column)
            digests.append(walk.digest())
        sums = fields.running_sums(table, count, walk.count)
        for column, (entries, groups, digest) in enumerate(zip(*sums, digests, strict=True), row):
            fields.hidden[column] = hidden_of(entries, groups, digest)


@operator(
    "sim::accept(Tensor tokens, Tensor starts, Tensor lengths, Tensor slots, Tensor live_rows, "
    "int vocab_size, Tensor hidden, Tensor consumed, Tensor epochs, Tensor seeds, Tensor prompt_hashes, "
    "Tensor min_tokens, Tensor max_tokens, Tensor stops, Tensor(a!) generated, Tensor(b!) finished, "
    "Tensor(c!) pending, Tensor(d!) records) -> Tensor",
    masked=True,
)
def accept(
    tokens: Array,
    starts: Array,
    lengths: Array,
    slots: Array,
    live_rows: Array,
    vocab_size: int,
    hidden: Array,
    consumed: Array,
    epochs: Array,
    seeds: Array,
    prompt_hashes: Array,
    min_tokens: Array,
    max_tokens: Array,
    stops: Array,
    generated: Array,
    finished: Array,
    pending: Array,
    records: Array,
    mask: Array | None = None,
) -> Array:
    """i32[L] accepted inputs: a token is drawn after each accepted input, and the next input is accepted when
    it is that token. A stop token or the length ends it; the last drawn token is pending. Operands as in
    `sim::draw`, whose draws these are; records i32[L, 16 + C] hold every drawn token; mask
    i32[L, W, ceil(V/32)] says what may be drawn behind each input."""
    records[:] = 0
    accepted = np.zeros(len(slots), dtype=np.int32)
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        if slot < 0:
            continue
        drawn: list[int] = []
        if finished[slot] == FinishCode.LIVE:
            start, count = int(starts[lane]), int(generated[slot])
            counts, seed, stopping = int(prompt_hashes[slot]), int(seeds[slot]), set(stops[slot].tolist())
            inputs = [*tokens[start + 1 : start + int(lengths[lane])].tolist(), -1]
            for column, proposed in enumerate(inputs, row):
                barred = stopping if count < min_tokens[slot] else set()
                if mask is not None:
                    barred = barred | forbidden(mask[lane, column - row], vocab_size)
                token = drawn_token(int(hidden[column]), signed(counts), seed, count, barred, vocab_size)
                drawn.append(token)
                count += 1
                counts += counted(token, output=True)
                if token in stopping:
                    finished[slot] = FinishCode.STOP_TOKEN
                elif count >= max_tokens[slot]:
                    finished[slot] = FinishCode.LENGTH
                if token != proposed or finished[slot] != FinishCode.LIVE:
                    break
            generated[slot], pending[slot] = count, drawn[-1]
        accepted[lane] = len(drawn)
        record = records[lane]
        record[METADATA_FIELDS : METADATA_FIELDS + len(drawn)] = drawn
        record[Record.TOKENS] = len(drawn)
        record[Record.STATUS] = Status.OK
        record[Record.SLOT] = slot
        record[Record.EPOCH] = epochs[slot]
        record[Record.FINISHED] = finished[slot]
        record[Record.CONSUMED] = consumed[slot] + len(drawn)
        record[Record.GENERATED] = record[Record.COUNTER] = generated[slot]
    return accepted


@operator(
    "sim::commit(Tensor tokens, Tensor starts, Tensor accepted, Tensor slots, Tensor live_rows, "
    "Tensor tables, Tensor(a!) consumed, Tensor(b!) columns, Tensor entries, Tensor(c!) window, "
    "Tensor(d!) open, Tensor(e!) history) -> ()"
)
def commit(
    tokens: Array,
    starts: Array,
    accepted: Array,
    slots: Array,
    live_rows: Array,
    tables: Array,
    consumed: Array,
    columns: Array,
    entries: Array,
    window: Array,
    open: Array,
    history: Array,
) -> None:
    """The column of the last accepted input becomes live, and the first row takes in the accepted inputs."""
    page_tokens = entries.shape[1]
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        length = int(accepted[lane])
        if not length:
            continue
        count, start = int(consumed[slot]), int(starts[lane])
        for place in range(count, count + length):
            entry = int(entries[tables[slot, place // page_tokens], place % page_tokens])
            window[row, place % window.shape[1]] = entry ^ WINDOW
            open[row, place % open.shape[1]] = entry ^ OPEN
        history[row] = [*history[row].tolist(), *tokens[start : start + length].tolist()][length:]
        consumed[slot], columns[slot] = count + length, length - 1


@operator(
    "sim::take_column(Tensor slots, Tensor columns, Tensor source, Tensor destination, "
    "Tensor(a!) recurrent, Tensor(b!) conv, Tensor(c!) counter, Tensor(d!) hidden) -> ()"
)
def take_column(slots: Array, columns: Array, source: Array, destination: Array, *fields: Array) -> None:
    """Fields of the slot's live column, counted from row `source`, to row `destination`."""
    for slot, origin, target in zip(slots.tolist(), source.tolist(), destination.tolist(), strict=True):
        if slot >= 0:
            for field in fields:
                field[target] = field[origin + columns[slot]]

"""Operators of the sim device: numpy functions over buffer views, by allowlisted name and schema text.

State arrays are updated in place. A negative index means "padding": nothing is read or written for it.
Hashes are 64-bit (splitmix64 finaliser, Steele et al. 2014), on wrapping unsigned integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import METADATA_FIELDS, FinishCode, Record, Status

Array = NDArray[Any]
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SimOperator:
    """One operator: `schema_text` is what a core recorded at preparation."""

    name: str
    schema_text: str
    run: Callable[..., Any]


OPERATORS: dict[str, SimOperator] = {}


def operator(schema_text: str, masked: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under the name that starts `schema_text`; one that is `masked` also as NAME_masked,
    with a grammar mask as its first operand and the last of the function."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        name, operands = schema_text.split("(", 1)
        OPERATORS[name] = SimOperator(name, schema_text, run)
        if masked:
            text = f"{name}_masked(Tensor mask, {operands}"
            with_mask = lambda mask, *others: run(*others, mask=mask)  # noqa: E731
            OPERATORS[f"{name}_masked"] = SimOperator(f"{name}_masked", text, with_mask)
        return run

    return register


def mix(value: int) -> int:
    """A 64-bit hash of a 64-bit integer."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` of every element."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def signed(value: int) -> int:
    """The i64 with the bits of `value` modulo 2^64."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


@operator("sim::scatter(Tensor(a!) target, Tensor index, Tensor values) -> ()")
def scatter(target: Array, index: Array, values: Array) -> None:
    """target[index[i]] = values[i]"""
    for position, value in zip(index.tolist(), values, strict=True):
        if position >= 0:
            target[position] = value


@operator("sim::scatter_row(Tensor(a!) target, Tensor index, Tensor row) -> ()")
def scatter_row(target: Array, index: Array, row: Array) -> None:
    """target[index[i]] = row, for target [R, n] and row [n]"""
    for position in index.tolist():
        if position >= 0:
            target[position] = row


@operator("sim::fill(Tensor(a!) target, Tensor index, int value) -> ()")
def fill(target: Array, index: Array, value: int) -> None:
    """target[index[i]] = value"""
    for position in index.tolist():
        if position >= 0:
            target[position] = value


@operator("sim::gather(Tensor source, Tensor index) -> Tensor")
def gather(source: Array, index: Array) -> Array:
    """source[index[i]], -1 for padding"""
    out = np.full((len(index), *source.shape[1:]), -1, dtype=source.dtype)
    for lane, position in enumerate(index.tolist()):
        if position >= 0:
            out[lane] = source[position]
    return out


@operator("sim::copy_block(Tensor(a!) blocks, Tensor source, Tensor destination) -> ()")
def copy_block(blocks: Array, source: Array, destination: Array) -> None:
    """blocks[destination[i]] = blocks[source[i]]"""
    for origin, target in zip(source.tolist(), destination.tolist(), strict=True):
        if origin >= 0:
            blocks[target] = blocks[origin]


@operator("sim::fold(Tensor tokens, Tensor length) -> Tensor")
def fold(tokens: Array, length: Array) -> Array:
    """i64[1] hash of the first `length` tokens, in order"""
    value = 0
    for token in tokens[: int(length[0])].tolist():
        value = mix(value ^ token)
    return np.array([signed(value)], dtype=np.int64)


_OUTPUT = 0x5851F42D4C957F2D  # separates counts of output tokens from those of prompt tokens


def counted(token: int, output: bool) -> int:
    """What one counted token adds to a request's counts."""
    return mix(token ^ _OUTPUT) if output else mix(token)


@operator("sim::count_history(Tensor tokens, Tensor length, Tensor output_length) -> Tensor")
def count_history(tokens: Array, length: Array, output_length: Array) -> Array:
    """i64[1] counts of the first `length` tokens, of which the last `output_length` are output"""
    end, total = int(length[0]), 0
    prompt = end - int(output_length[0])
    for place, token in enumerate(tokens[:end].tolist()):
        total += counted(token, place >= prompt)
    return np.array([signed(total)], dtype=np.int64)


@operator("sim::count_output(Tensor(a!) counts, Tensor records) -> ()")
def count_output(counts: Array, records: Array) -> None:
    """Add every drawn token of the lanes' records to the counts of their slots"""
    for record in records.tolist():
        for token in record[METADATA_FIELDS : METADATA_FIELDS + record[Record.TOKENS]]:
            slot = record[Record.SLOT]
            counts[slot] = signed(int(counts[slot]) + counted(token, output=True))


@operator("sim::extend_tables(Tensor(a!) tables, Tensor slots, Tensor updates) -> ()")
def extend_tables(tables: Array, slots: Array, updates: Array) -> None:
    """tables[slots[i], updates[i, 0]] = updates[i, 1]"""
    for slot, (logical, physical) in zip(slots.tolist(), updates.tolist(), strict=True):
        if slot >= 0 and logical >= 0:
            tables[slot, logical] = physical


@operator(
    "sim::consume(Tensor tokens, Tensor? query_start, Tensor slots, Tensor live_rows, Tensor finished, "
    "Tensor tables, Tensor(a!) consumed, Tensor(b!) pages, Tensor(c!) recurrent, Tensor(d!) counter, "
    "Tensor(e!) hidden) -> ()"
)
def consume(
    tokens: Array,
    query_start: Array | None,
    slots: Array,
    live_rows: Array,
    finished: Array,
    tables: Array,
    consumed: Array,
    pages: Array,
    recurrent: Array,
    counter: Array,
    hidden: Array,
) -> None:
    """Append every lane's tokens to all of its state, then hash all of it into its hidden.

    tokens i32[N]; query_start i32[L+1], or None for one token per lane; slots, live_rows i32[L]; per slot:
    finished, consumed i32[S], tables i32[S, MP]; pages i64[P, page_tokens]; per row: recurrent, counter,
    hidden i64[R]. A finished slot is left alone. Raises RuntimeError for a write to the null page or row.
    """
    page_tokens = pages.shape[1]
    starts = range(len(slots) + 1) if query_start is None else query_start.tolist()
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        if slot < 0 or finished[slot] != FinishCode.LIVE:
            continue
        count = int(consumed[slot])
        state = int(recurrent[row])
        table = tables[slot]
        for token in tokens[starts[lane] : starts[lane + 1]].tolist():
            page = table[count // page_tokens]
            if page <= 0 or row <= 0:
                raise RuntimeError(f"slot {slot} writes page {page} and row {row}; number 0 is for padding")
            pages[page, count % page_tokens] = signed(mix(token * 0x10001 + count))
            state = signed(mix((state ^ token) & _MASK))
            count += 1
        consumed[slot], recurrent[row] = count, state
        counter[row] += starts[lane + 1] - starts[lane]
        entries = pages[table[: -(-count // page_tokens)]].reshape(-1)[:count].astype(np.uint64)
        places = np.arange(count, dtype=np.uint64)
        total = int(mix_array(entries ^ places).sum(dtype=np.uint64))
        hidden[row] = signed(mix((total ^ state ^ mix(int(counter[row]))) & _MASK))


@operator(
    "sim::draw(Tensor slots, Tensor live_rows, Tensor? sample, int vocab_size, Tensor hidden, "
    "Tensor consumed, Tensor epochs, Tensor seeds, Tensor prompt_hashes, Tensor min_tokens, "
    "Tensor max_tokens, Tensor stops, Tensor(a!) generated, Tensor(b!) finished, Tensor(c!) pending, "
    "Tensor(d!) records) -> ()",
    masked=True,
)
def draw(
    slots: Array,
    live_rows: Array,
    sample: Array | None,
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
) -> None:
    """Draw the next token of every sampled lane from its hidden and its request, and report.

    slots, live_rows, sample i32[L] (None samples all lanes); hidden i64[R]; everything else per slot, with
    stops i32[S, K]; records i32[L, 16 + C]; mask i32[L, ceil(V/32)]. A slot that had finished draws nothing
    and reports no token. A lane whose mask admits nothing draws nothing and reports an invalid distribution.
    """
    records[:] = 0
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        if slot < 0:
            continue
        record = records[lane]
        record[Record.STATUS] = Status.OK
        record[Record.SLOT] = slot
        record[Record.EPOCH] = epochs[slot]
        if finished[slot] == FinishCode.LIVE and (sample is None or sample[lane]):
            count = int(generated[slot])
            barred = set(stops[slot].tolist()) if count < min_tokens[slot] else set()
            if mask is not None:
                barred |= forbidden(mask[lane], vocab_size)
                if len(barred - {-1}) == vocab_size:
                    record[Record.STATUS] = Status.INVALID
                    continue
            token = drawn_token(
                int(hidden[row]), int(prompt_hashes[slot]), int(seeds[slot]), count, barred, vocab_size
            )
            generated[slot], pending[slot] = count + 1, token
            if token in stops[slot]:
                finished[slot] = FinishCode.STOP_TOKEN
            elif count + 1 >= max_tokens[slot]:
                finished[slot] = FinishCode.LENGTH
            record[METADATA_FIELDS] = token
            record[Record.TOKENS] = 1
        record[Record.FINISHED] = finished[slot]
        record[Record.CONSUMED] = consumed[slot]
        record[Record.GENERATED] = record[Record.COUNTER] = generated[slot]


def forbidden(mask: Array, vocab_size: int) -> set[int]:
    """Tokens that a mask i32[ceil(V/32)] does not admit."""
    bits = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), count=vocab_size, bitorder="little")
    return set(np.flatnonzero(bits == 0).tolist())


def drawn_token(
    hidden: int, prompt_hash: int, seed: int, counter: int, barred: set[int], vocab_size: int
) -> int:
    """The token drawn for one request: a hash of everything, moved past `barred` tokens."""
    token = mix((hidden ^ mix((prompt_hash ^ seed) & _MASK) ^ mix(counter)) & _MASK) % vocab_size
    while token in barred:
        token = (token + 1) % vocab_size
    return token

"""Rows of tables, from the host and read by programs: which, where they go, and what a core must declare."""

from dataclasses import replace

import numpy as np
import pytest
from engine_harness import Harness, image, request
from hypothesis import given
from hypothesis import strategies as st

from flare.contract import PendingTokens, PreparedContract, ProgramKind, TableResource
from flare.device.lookups import NgramLookup, lookup_of
from flare.device.sim_ops import OPERATORS
from flare.engine.table_rows import TableRows
from flare.errors import CoreError
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import HashShape

SEPARATOR = 3
MULTIPLIERS = (2**62 + 1, -(2**61) + 5, 987654321987654321, 77)
tokens = st.lists(st.integers(0, 9), max_size=30)


def parameters(longest: int, functions: int) -> tuple[int, ...]:
    moduli = tuple(101 + 2 * place for place in range((longest - 1) * functions))
    offsets = tuple(1000 * place for place in range(len(moduli)))
    return (longest, functions, SEPARATOR, *MULTIPLIERS[:longest], *moduli, *offsets)


def plainly(history: list[int], place: int, longest: int, functions: int) -> list[int]:
    """The rows of the token at `place`, by Python's integers."""
    found = []
    for n in range(2, longest + 1):
        mixed = history[place] * MULTIPLIERS[0]
        for back in range(1, n):
            between = history[max(place - back, 0) : place]
            whole = back <= place and SEPARATOR not in between
            mixed ^= (history[place - back] if whole else SEPARATOR) * MULTIPLIERS[back]
        mixed = (mixed + 2**63) % 2**64 - 2**63
        for function in range(functions):
            pair = (n - 2) * functions + function
            found.append(mixed % (101 + 2 * pair) + 1000 * pair)
    return found


@given(history=tokens, cut=st.integers(0, 30), longest=st.integers(2, 4), functions=st.integers(1, 3))
def test_ngrams_are_those_of_the_history_however_it_is_cut(history, cut, longest, functions):
    lookup = NgramLookup(parameters(longest, functions))
    cut = min(cut, len(history))
    before = history[max(cut - lookup.context, 0) : cut]
    rows = lookup.rows(before, history[cut:])
    assert rows.tolist() == [plainly(history, at, longest, functions) for at in range(cut, len(history))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lookup": "modulo"}, "lookup 'modulo' is unknown to this engine, which has ngram"),
        ({"parameters": parameters(3, 2)[:-1]}, "parameters for n-grams up to 3"),
        ({"parameters": ()}, "lookup ngram"),
        ({"parameters": (2, 1, 0, 1, 1, 0, 0)}, "a modulus below 1"),
        ({"parameters": (2, 1, 0, 2**70, 1, 7, 0)}, "lookup ngram"),
        ({"rows": 3106}, "rows up to 3107, it has 3106"),
    ],
)
def test_a_table_that_cannot_be_looked_up_is_an_error(changes, message):
    table = TableResource(
        name="grams", tensor="t", rows=3107, row_bytes=8, lookup="ngram", parameters=parameters(3, 2)
    )
    assert lookup_of(table).rows_per_token == 4
    with pytest.raises(CoreError, match=message):
        lookup_of(table.model_copy(update=changes))


TABLED = HashModel(context=40, page_tokens=4, vocab_size=23, host_fed=True, shape=HashShape(table=409))


def test_rows_reach_every_program():
    harness = Harness(TABLED)
    prompt = tuple(number % 23 for number in range(0, 60, 3))
    harness.submit(request("a", prompt))
    harness.run()
    harness.submit(request("again", prompt))
    harness.submit(request("longer", (*prompt, 2, 2, 5)))
    harness.run()
    harness.check()
    plain = Harness(HashModel(context=40, page_tokens=4, vocab_size=23, host_fed=True))
    plain.submit(request("a", prompt))
    plain.run()
    assert plain.output("a") != harness.output("a"), "the table enters the state"
    assert harness.engine.scheduler._max_frames == 1


def test_programs_that_read_rows_need_no_tokens_from_the_host():
    harness = Harness(replace(TABLED, host_fed=False, resident=True))
    prompt = tuple(number % 23 for number in range(0, 60, 3))
    for name, tokens in (("a", prompt), ("separated", (*prompt, 2, 2, 5)), ("short", (7,))):
        harness.submit(request(name, tokens))
    harness.run()
    harness.submit(request("again", prompt))
    harness.run()
    harness.check()
    assert not harness.device.tables
    assert harness.engine.scheduler._max_frames == 2


@pytest.mark.parametrize("fault", ["no history", "another row's", "before it was written"])
def test_wrong_histories_of_tokens_are_noticed(monkeypatch, fault):
    name = "sim::read_grams"
    right = OPERATORS[name]

    def read(tokens, starts, lengths, slots, rows, consumed, history, table, parameters):
        if fault == "no history":
            consumed = np.zeros_like(consumed)
        elif fault == "another row's":
            history = np.roll(history, 1, 0)
        else:
            history = np.roll(history, 1, 1)
        return right.run(tokens, starts, lengths, slots, rows, consumed, history, table, parameters)

    monkeypatch.setitem(OPERATORS, name, replace(right, run=read))
    harness = Harness(replace(TABLED, host_fed=False, resident=True, context=41))
    for request_name, prompt in (("a", (5, 6, 7, 8, 9, 1)), ("b", (6, 2, 6))):
        harness.submit(request(request_name, prompt))
    harness.run()
    with pytest.raises(AssertionError):
        harness.check()


def test_a_table_that_programs_read_is_a_buffer():
    content = image(replace(TABLED, host_fed=False, resident=True)).contract.model_dump()
    (placed,) = (one for one in content["buffers"] if one["region"] == "table_rows")
    placed["region"] = "scratch"
    with pytest.raises(ValueError, match="table grams is resident, but no buffer has it"):
        PreparedContract.model_validate(content)


@pytest.mark.parametrize("fault", ["no history", "the token before", "another lane"])
def test_wrong_rows_are_noticed(monkeypatch, fault):
    def pack(self, view, plan):
        view[:] = 0
        for lane, rows in self._token_rows.of(plan):
            start = rows.start
            at = lane.consumed - (fault == "the token before")
            inputs = list(lane.request.tokens[at : at + lane.length])
            before = [] if fault == "no history" else lane.request.tokens[max(at - 2, 0) : max(at, 0)]
            start = start + (fault == "another lane") if start + len(inputs) < len(view) else start
            view[start : start + len(inputs)] = self._read(self._lookup.rows(before, inputs))

    monkeypatch.setattr(TableRows, "__call__", pack)
    harness = Harness(TABLED)
    for name, prompt in (("a", (5, 6, 7, 8, 9, 1)), ("b", (6, 2, 6))):
        harness.submit(request(name, prompt))
    harness.run()
    with pytest.raises(AssertionError):
        harness.check()


def changed(kind: ProgramKind, **changes) -> dict:
    content = image(TABLED).contract.model_dump()
    for program in content["programs"]:
        if program["kind"] == kind:
            program.update(changes)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(ProgramKind.DECODE, pending=PendingTokens.DEVICE), "need pending tokens from the host"),
        (
            changed(ProgramKind.DECODE, tables=()),
            r"rows of tables \['grams'\] are uploaded, \[\] are declared",
        ),
        (changed(ProgramKind.RESUME, tables=({"table": "grams", "delivery": "host_rows"},)), "are declared"),
    ],
)
def test_what_host_rows_need_is_part_of_the_contract(content, message):
    with pytest.raises(ValueError, match=message):
        PreparedContract.model_validate(content)


def test_drafts_of_the_device_cannot_be_looked_up():
    with pytest.raises(ValueError, match="need proposals from the host"):
        HashModel(host_fed=True, speculative=((4, 2, 3, 12),), shape=HashShape(table=97)).build()


def test_a_mapped_table_is_not_copied():
    harness = Harness(TABLED)
    assert not harness.device.tables["grams"].flags.owndata
    assert harness.device.tables["grams"].view(np.uint64).shape == (409,)

"""`flare::ngram_rows`: exact integers."""

import pytest
import torch
from ragged import MIXES, Ragged, agree, leaves_others_alone

from flare.device.lookups import NgramLookup
from flare_components.ops import reference_sequence

EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
BOUNDARY = 3


def operands(lanes, order=3, heads=4, vocabulary=6, wrap=False, tables=2):
    """A vocabulary so small that boundaries are everywhere."""
    g = lanes.generator
    ids = torch.randint(0, vocabulary, (lanes.rows,), generator=g, dtype=torch.int32)
    ids[lanes.live :] = -1
    history = lanes.state(order - 1).zero_().to(torch.int32)
    history[:] = torch.randint(0, vocabulary, history.shape, generator=g)
    largest = 2**63 - 1 if wrap else 2**40
    multipliers = torch.randint(largest // 2, largest, (tables, order), generator=g) | 1
    moduli = torch.randint(50, 20_000_000, (tables, (order - 1) * heads), generator=g)
    offsets = moduli.cumsum(1) - moduli
    lengths = lanes.query_start, lanes.context_lens, lanes.live_rows
    return ids, history, *lengths, multipliers, moduli, offsets, BOUNDARY


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("wrap", [False, True])
@EACH
def test_agrees_with_python_integers(mix, wrap, order):
    for seed in range(4):
        args = operands(Ragged(mix, seed), order, wrap=wrap)
        agree("ngram_rows", reference_sequence.ngram_rows, args, written=(1,), tolerance=0)


@EACH
def test_other_state_keeps_its_bytes(mix):
    lanes = Ragged(mix)
    leaves_others_alone("ngram_rows", lanes, operands(lanes), 1)


def rows(ids, past=()):
    lanes = Ragged([(len(ids), len(past))])
    args = list(operands(lanes, heads=1, tables=1))
    args[0] = torch.tensor(ids, dtype=torch.int32)
    args[1][lanes.live_rows[0]] = torch.tensor([0, 0, *past][-2:], dtype=torch.int32)
    args[2], args[3], args[4] = args[2][:2], args[3][:1], args[4][:1]
    return torch.ops.flare.ngram_rows(*args)[:, 0].tolist()


def test_a_boundary_hides_what_is_before_it():
    assert rows([1, BOUNDARY, 5])[2] == rows([2, BOUNDARY, 5])[2]
    assert rows([1, 4, 5])[2] != rows([2, 4, 5])[2]
    assert rows([BOUNDARY, 4, 5])[2][1] != rows([1, 4, 5])[2][1]


def test_the_beginning_is_like_a_boundary():
    assert rows([4, 5]) == rows([4, 5], past=[1, BOUNDARY])
    assert rows([4, 5]) == rows([4, 5], past=[BOUNDARY])
    assert rows([4]) != rows([4], past=[1])


def test_a_boundary_sees_what_is_before_it():
    assert rows([1, BOUNDARY])[1] != rows([2, BOUNDARY])[1]


@pytest.mark.parametrize("wrap", [False, True])
def test_the_host_looks_up_the_same_rows(wrap):
    """Where rows are delivered by the host, the engine computes them from the same constants."""
    lanes = Ragged([(50, 0)])
    ids, _, _, _, _, multipliers, moduli, offsets, boundary = args = operands(lanes, wrap=wrap)
    found, tokens = torch.ops.flare.ngram_rows(*args)[:50], ids[:50].tolist()
    for table in range(2):
        numbers = [number for part in (multipliers, moduli, offsets) for number in part[table].tolist()]
        lookup, rows = NgramLookup([3, 4, boundary, *numbers]), found[:, table]
        assert lookup.rows([], tokens).tolist() == rows.tolist()
        assert lookup.rows(tokens[20:22], tokens[22:]).tolist() == rows[22:].tolist()

"""All replacement modules together against the canonical model: a whole prompt, cut and restored."""

import copy

import pytest
import torch
from canonical import canonical, schemes
from hybrid import Served
from packed import PackedState, in_cuts, two_way_cuts

from flare.contract import DType

LENGTH, BOUNDARY = 40, 7


@pytest.fixture(scope="module")
def model():
    return canonical()


@pytest.fixture(scope="module")
def served(model):
    served = Served(model)
    return lambda batch, state: served.logits(served.hidden(batch, state))


@pytest.fixture
def storage(model):
    return PackedState(schemes(model.config), lanes=2)


def prompt(length, seed=3):
    ids = torch.randint(0, 512, (length,), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    if length > 20:
        ids[20] = BOUNDARY
    return ids


def expected(model, ids):
    return model(input_ids=ids.unsqueeze(0).long(), use_cache=False).logits[0]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 19, 20, LENGTH])
def test_logits_of_one_call(model, served, storage, length):
    ids = prompt(length)
    out = served(storage.batch([(0, length)], ids), storage.state)
    torch.testing.assert_close(out, expected(model, ids), atol=1e-4, rtol=1e-5)


def test_logits_of_every_cut(model, served, storage):
    ids = prompt(LENGTH)
    want = expected(model, ids)
    for cuts in two_way_cuts(LENGTH):
        out = in_cuts(lambda part, *args: served(*args), storage, cuts, ids)
        torch.testing.assert_close(out, want, atol=1e-4, rtol=1e-5, msg=str(cuts))


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 7, 8, 9, 19, 20, 21, 39])
def test_a_copied_row_and_tail_page_continue_with_the_same_bits(served, storage, kept):
    """Lane 1 takes over lane 0's row and pages at any count; both then compute the same."""
    ids = prompt(LENGTH)
    served(storage.batch([(0, kept)], ids[:kept]), storage.state)
    storage.row_bytes[storage.rows[1]] = storage.row_bytes[storage.rows[0]]
    storage.page_bytes[storage.table[1].long()] = storage.page_bytes[storage.table[0].long()]
    storage.consumed[1] = kept
    rest = ids[kept:]
    logits = [served(storage.batch([(lane, len(rest))], rest), storage.state) for lane in (0, 1)]
    assert torch.equal(*logits)


def test_requests_beside_each_other(model, served, storage):
    ids = [prompt(LENGTH, seed) for seed in (3, 4)]
    out = served(
        storage.batch([(0, 30), (1, 5)], torch.cat((ids[0][:30], ids[1][:5])), padding=3), storage.state
    )
    got = [[out[:30]], [out[30:35]]]
    for step in range(10):
        tokens = torch.stack((ids[1][5 + step], ids[0][30 + step]))
        out = served(storage.batch([(1, 1), (0, 1)], tokens, idle=2), storage.state)
        got[1].append(out[:1])
        got[0].append(out[1:2])
    for lane, length in ((0, 40), (1, 15)):
        want = expected(model, ids[lane][:length])
        torch.testing.assert_close(torch.cat(got[lane]), want, atol=1e-4, rtol=1e-5)


def test_bf16_is_as_near_as_the_canonical_model_in_bf16(model):
    """Against FP32 arithmetic on the same rounded weights, in most rows: some choose another expert."""
    rounded, exact = copy.deepcopy(model), copy.deepcopy(model)
    for a, b in zip(rounded.parameters(), exact.parameters(), strict=True):
        a.data = a.data.bfloat16()
        b.data = a.data.float()
    served, ours, theirs = Served(model).in_bf16(), [], []
    for seed in range(6):
        ids = prompt(60, seed)
        storage = PackedState(schemes(model.config, DType.BF16))
        logits = in_cuts(lambda _, *args: served.logits(served.hidden(*args)), storage, [43, 16, 1], ids)
        assert logits.dtype == torch.bfloat16
        want = expected(exact, ids)
        ours.append((logits - want).pow(2).mean(1).sqrt())
        theirs.append((expected(rounded, ids) - want).pow(2).mean(1).sqrt())
    assert float(torch.cat(ours).median()) < 1.2 * float(torch.cat(theirs).median())

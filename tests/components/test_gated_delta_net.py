"""Linear attention against the canonical module, whole, cut and beside others."""

import pytest
import torch
from canonical import canonical, delta_net, schemes
from packed import PackedState, in_cuts, two_way_cuts

LENGTH = 40
LAYER = 1


@pytest.fixture(scope="module")
def model():
    return canonical()


@pytest.fixture(scope="module")
def module(model):
    return delta_net(model.model.layers[LAYER].linear_attn, model.config, LAYER)


@pytest.fixture
def storage(model):
    return PackedState(schemes(model.config), lanes=3)


def rows(length, seed=0):
    return torch.randn(length, 64, generator=torch.Generator().manual_seed(seed))


def expected(model, x):
    with torch.no_grad():
        return model.model.layers[LAYER].linear_attn(x.unsqueeze(0))[0]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, LENGTH, 63, 64, 65, 130])
def test_one_call_equals_the_canonical_module(model, module, length):
    storage, x = PackedState(schemes(model.config), context=256), rows(length)
    out = module(x, storage.batch([(0, length)]), storage.state)
    torch.testing.assert_close(out, expected(model, x), atol=3e-5, rtol=1e-5)


def test_every_cut_continues(model, module, storage):
    x = rows(LENGTH)
    want = expected(model, x)
    for cuts in two_way_cuts(LENGTH):
        out = in_cuts(lambda part, *args: module(x[part], *args), storage, cuts)
        torch.testing.assert_close(out, want, atol=3e-5, rtol=1e-5, msg=str(cuts))


@pytest.mark.parametrize("cuts", [[LENGTH], [17, 23], [1, 38, 1], [1] * LENGTH])
def test_a_partition_determines_every_bit(model, module, cuts):
    x = rows(LENGTH)
    first, second = (PackedState(schemes(model.config), lanes=2, seed=seed) for seed in (1, 2))
    outputs = [in_cuts(lambda part, *args: module(x[part], *args), s, cuts) for s in (first, second)]
    assert torch.equal(*outputs)
    assert torch.equal(first.sequence_bytes(0)[0], second.sequence_bytes(0)[0])


def test_lanes_do_not_touch_each_other(model, module):
    """Chunks and single rows beside each other, with idle lanes and padding: the same bits as alone."""
    inputs = [rows(LENGTH, seed) for seed in range(3)]
    together, alone = (PackedState(schemes(model.config), lanes=3) for _ in range(2))
    done = [0, 0, 0]
    for parts in ([(0, 5), (1, 1)], [(2, 7), (0, 1), (1, 9)], [(1, 1), (2, 1), (0, 1)], [(0, 20)]):
        spans = [slice(done[lane], done[lane] + count) for lane, count in parts]
        packed = [inputs[lane][span] for (lane, _), span in zip(parts, spans, strict=True)]
        batch = together.batch(parts, idle=2, padding=3)
        x = torch.cat((*packed, torch.full((5, 64), torch.nan)))
        out = module(x, batch, together.state).split([count for _, count in parts] + [5])
        for (lane, count), own, got in zip(parts, packed, out, strict=False):
            want = module(own, alone.batch([(lane, count)]), alone.state)
            assert torch.equal(got, want)
            done[lane] += count
    for lane in range(3):
        a, b = (s.state.rows["memory"][LAYER][s.rows[lane]] for s in (together, alone))
        assert torch.equal(a, b)


def test_padding_writes_nothing(model, module, storage):
    before = storage.row_bytes.clone(), storage.page_bytes.clone()
    batch = storage.batch([(0, 0)], idle=2, padding=4)
    module(torch.full((6, 64), torch.nan), batch, storage.state)
    assert torch.equal(storage.row_bytes, before[0])
    assert torch.equal(storage.page_bytes, before[1])

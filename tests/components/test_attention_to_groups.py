"""Attention over selected groups against the canonical module, whole, cut and beside others."""

import copy

import pytest
import torch
from canonical import canonical, group_rotary, schemes, selected_attention
from packed import PackedState, in_cuts, two_way_cuts

LENGTH, GROUP, LAYER = 40, 4, 3
ACCURATE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def model():
    return canonical()


@pytest.fixture(scope="module")
def modules(model):
    return group_rotary(model), selected_attention(model.model.layers[LAYER].self_attn, model.config)


@pytest.fixture
def storage(model):
    return PackedState(schemes(model.config), lanes=3)


def sequence(length, seed=0, image=range(11, 23)):
    """Rows, and positions of text around an image: its tokens share one time and count rows and columns."""
    x = torch.randn(length, 64, generator=torch.Generator().manual_seed(seed))
    positions, at = [], 0
    for token in range(length):
        if token in image:
            place = token - image.start
            positions.append((image.start, image.start + place // 4, image.start + place % 4))
            at = image.start + 4
        else:
            positions.append((at, at, at))
            at += 1
    return x, torch.tensor(positions, dtype=torch.int32).t().contiguous()


def attended(modules, x, positions, batch, state):
    return modules[1](x, modules[0](positions, batch, state), batch, state)


def expected(model, x, positions, layer=None):
    length = x.shape[0]
    tables = model.model.rotary_emb(x, positions.unsqueeze(1).long())
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    mask = torch.zeros(length, length).masked_fill(hidden, torch.finfo(torch.float32).min)
    layer = layer or model.model.layers[LAYER].self_attn
    return layer(x.unsqueeze(0), tables, mask.view(1, 1, length, length), None)[0][0]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 15, 16, 17, 19, 20, 21, 23, 24, LENGTH])
def test_one_call_equals_the_canonical_module(model, modules, storage, length):
    """The budget is 16 tokens: up to 19 all are attended to, from 20 on a selection."""
    x, positions = sequence(length)
    out = attended(modules, x, positions, storage.batch([(0, length)]), storage.state)
    torch.testing.assert_close(out, expected(model, x, positions), **ACCURATE)


@pytest.mark.parametrize("image", [range(0), range(11, 23)], ids=["text", "image"])
def test_every_cut_continues(model, modules, storage, image):
    x, positions = sequence(LENGTH, image=image)
    want = expected(model, x, positions)
    for cuts in two_way_cuts(LENGTH):
        out = in_cuts(
            lambda part, *args: attended(modules, x[part], positions[:, part], *args), storage, cuts
        )
        torch.testing.assert_close(out, want, **ACCURATE, msg=str(cuts))


@pytest.mark.parametrize("page_tokens", [4, 8, 64])
def test_pages_of_any_size_hold_whole_groups(model, modules, page_tokens):
    x, positions = sequence(LENGTH)
    want = expected(model, x, positions)
    storage = PackedState(schemes(model.config), page_tokens=page_tokens)
    for cuts in ([LENGTH], [21, 19], [1] * LENGTH):
        out = in_cuts(
            lambda part, *args: attended(modules, x[part], positions[:, part], *args), storage, cuts
        )
        torch.testing.assert_close(out, want, **ACCURATE, msg=str(cuts))


def test_under_the_budget_it_is_ordinary_attention(model, storage):
    x, positions = sequence(LENGTH)
    layer = copy.deepcopy(model.model.layers[LAYER].self_attn)
    layer.indexer.token_budget, layer.indexer.block_topk = 64, 16
    modules = group_rotary(model), selected_attention(layer, model.config, budget=64)
    out = attended(modules, x, positions, storage.batch([(0, LENGTH)]), storage.state)
    torch.testing.assert_close(out, expected(model, x, positions, layer), **ACCURATE)


@pytest.mark.parametrize("cuts", [[LENGTH], [18, 22], [1] * LENGTH])
def test_a_partition_determines_every_bit_of_state(model, modules, cuts):
    x, positions = sequence(LENGTH)
    states = []
    for seed in (1, 2):
        storage = PackedState(schemes(model.config), lanes=2, seed=seed)
        in_cuts(lambda part, *args: attended(modules, x[part], positions[:, part], *args), storage, cuts)
        states.append(storage.sequence_bytes(0))
    for a, b in zip(*states, strict=True):
        assert torch.equal(a, b)


def test_lanes_do_not_touch_each_other(model, modules):
    inputs = [sequence(LENGTH, seed) for seed in range(3)]
    together, alone = (PackedState(schemes(model.config), lanes=3) for _ in range(2))
    done = [0, 0, 0]
    steps = [[(0, 21), (1, 1)], [(2, 7), (0, 1), (1, 22)], [(1, 1), (2, 1), (0, 1)], [(0, 10), (1, 1)]]
    for parts in steps:
        spans = [slice(done[lane], done[lane] + count) for lane, count in parts]
        own = [
            (inputs[lane][0][span], inputs[lane][1][:, span])
            for (lane, _), span in zip(parts, spans, strict=True)
        ]
        batch = together.batch(parts, idle=2, padding=3)
        x = torch.cat([rows for rows, _ in own] + [torch.full((5, 64), torch.nan)])
        positions = torch.cat([places for _, places in own] + [torch.full((3, 5), -9, dtype=torch.int32)], 1)
        out = attended(modules, x, positions, batch, together.state)
        for (lane, count), (rows, places), got in zip(
            parts, own, out.split([len(rows) for rows, _ in own] + [5]), strict=False
        ):
            want = attended(modules, rows, places, alone.batch([(lane, count)]), alone.state)
            torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-6)
            done[lane] += count
    for lane in range(3):
        for a, b in zip(together.sequence_bytes(lane), alone.sequence_bytes(lane), strict=True):
            assert torch.equal(a, b)


def test_padding_writes_nothing(modules, storage):
    before = storage.row_bytes.clone(), storage.page_bytes.clone()
    batch = storage.batch([(0, 0)], idle=2, padding=4)
    positions = torch.full((3, 6), -9, dtype=torch.int32)
    attended(modules, torch.full((6, 64), torch.nan), positions, batch, storage.state)
    assert torch.equal(storage.row_bytes, before[0])
    assert torch.equal(storage.page_bytes, before[1])

"""Linear attention, with a decay of heads and of channels, against the canonical modules: whole, cut, beside
others."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from canonical import canonical, delta_net, schemes
from canonical_glm import canonical_glm, channel_delta_net, linear_schemes, randomized, text_config
from packed import PackedState, in_cuts, two_way_cuts
from torch import nn
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextLinearAttention

LENGTH = 40
LAYER = 1


@dataclass(frozen=True)
class Net:
    """A canonical module, the one that stands for it, and their state."""

    source: nn.Module
    module: nn.Module
    schemes: tuple[Any, ...]


def of_heads():
    model = canonical()
    source = model.model.layers[LAYER].linear_attn
    return Net(source, delta_net(source, model.config, LAYER), schemes(model.config))


def of_channels():
    model = canonical_glm()
    source = model.layers[LAYER].self_attn
    return Net(source, channel_delta_net(source, model.config, LAYER), linear_schemes(model.config))


@pytest.fixture(scope="module", params=[of_heads, of_channels], ids=["heads", "channels"])
def net(request):
    return request.param()


@pytest.fixture
def storage(net):
    return PackedState(net.schemes, lanes=3)


def rows(length, seed=0):
    return torch.randn(length, 64, generator=torch.Generator().manual_seed(seed))


def expected(net, x):
    with torch.no_grad():
        return net.source(x.unsqueeze(0))[0]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, LENGTH, 63, 64, 65, 130])
def test_one_call_equals_the_canonical_module(net, length):
    storage, x = PackedState(net.schemes, context=256), rows(length)
    out = net.module(x, storage.batch([(0, length)]), storage.state)
    torch.testing.assert_close(out, expected(net, x), atol=3e-5, rtol=1e-5)


def test_every_cut_continues(net, storage):
    x = rows(LENGTH)
    want = expected(net, x)
    for cuts in two_way_cuts(LENGTH):
        out = in_cuts(lambda part, *args: net.module(x[part], *args), storage, cuts)
        torch.testing.assert_close(out, want, atol=3e-5, rtol=1e-5, msg=str(cuts))


@pytest.mark.parametrize("cuts", [[LENGTH], [17, 23], [1, 38, 1], [1] * LENGTH])
def test_a_partition_determines_every_bit(net, cuts):
    x = rows(LENGTH)
    first, second = (PackedState(net.schemes, lanes=2, seed=seed) for seed in (1, 2))
    outputs = [in_cuts(lambda part, *args: net.module(x[part], *args), s, cuts) for s in (first, second)]
    assert torch.equal(*outputs)
    assert torch.equal(first.sequence_bytes(0)[0], second.sequence_bytes(0)[0])


def test_lanes_do_not_touch_each_other(net):
    """Chunks and single rows beside each other, with idle lanes and padding: the same bits as alone."""
    inputs = [rows(LENGTH, seed) for seed in range(3)]
    together, alone = (PackedState(net.schemes, lanes=3) for _ in range(2))
    done = [0, 0, 0]
    for parts in ([(0, 5), (1, 1)], [(2, 7), (0, 1), (1, 9)], [(1, 1), (2, 1), (0, 1)], [(0, 20)]):
        spans = [slice(done[lane], done[lane] + count) for lane, count in parts]
        packed = [inputs[lane][span] for (lane, _), span in zip(parts, spans, strict=True)]
        batch = together.batch(parts, idle=2, padding=3)
        x = torch.cat((*packed, torch.full((5, 64), torch.nan)))
        out = net.module(x, batch, together.state).split([count for _, count in parts] + [5])
        for (lane, count), own, got in zip(parts, packed, out, strict=False):
            want = net.module(own, alone.batch([(lane, count)]), alone.state)
            assert torch.equal(got, want)
            done[lane] += count
    for lane in range(3):
        a, b = (s.state.rows["memory"][LAYER][s.rows[lane]] for s in (together, alone))
        assert torch.equal(a, b)


@pytest.mark.parametrize("cuts", [[130], [70, 60], [129, 1], [1, 64, 65]])
def test_real_head_widths_with_extreme_decays_of_channels(cuts):
    """Gates far on either side: channels that decay by e^-5 a row stand beside channels that keep all."""
    config = text_config(linear_head_dim=128, linear_num_heads=2)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        source = randomized(Glm5NextTextLinearAttention(config, 0))
    source.forget_gate.dt_bias.normal_(std=30, generator=torch.Generator().manual_seed(4))
    source.forget_gate.A_log.copy_(torch.tensor([-1.0, 1.5]))
    net = Net(source, channel_delta_net(source, config, 0), linear_schemes(config))
    x, storage = rows(130), PackedState(net.schemes, context=256)
    decays = source.forget_gate(x.unsqueeze(0))
    assert float(decays.min()) < -4.99
    assert float(decays.max()) > -1e-6
    out = in_cuts(lambda part, *args: net.module(x[part], *args), storage, cuts)
    torch.testing.assert_close(out, expected(net, x), atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_a_snapshot_continues_with_the_same_bits(net, count):
    """Bytes of a row, copied to another lane's row after `count` tokens, and continued there."""
    x = rows(LENGTH)
    storage = PackedState(net.schemes, lanes=2, seed=3)
    net.module(x[:count], storage.batch([(0, count)]), storage.state)
    storage.row_bytes[storage.rows[1]] = storage.row_bytes[storage.rows[0]]
    storage.consumed[1] = count
    rest = LENGTH - count
    outputs = [net.module(x[count:], storage.batch([(lane, rest)]), storage.state) for lane in range(2)]
    assert torch.equal(*outputs)
    assert torch.equal(*(storage.row_bytes[row] for row in storage.rows))


def test_padding_writes_nothing(net, storage):
    before = storage.row_bytes.clone(), storage.page_bytes.clone()
    batch = storage.batch([(0, 0)], idle=2, padding=4)
    net.module(torch.full((6, 64), torch.nan), batch, storage.state)
    assert torch.equal(storage.row_bytes, before[0])
    assert torch.equal(storage.page_bytes, before[1])

"""Layers of linear attention, dense and routed, between streams: joined as a recipe joins them, against the
canonical layers: whole, cut, beside others, and in BF16."""

import copy

import pytest
import torch
from canonical_glm import (
    balanced_hyper_connection,
    canonical_glm,
    channel_delta_net,
    gated_mlp,
    linear_schemes,
    sigmoid_mixture,
)
from packed import PackedState, in_cuts, two_way_cuts
from torch import nn
from traced_step import traced_step
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextMLP

from flare.contract import DType
from flare_components.modules import Expansion, ExpertMixture

flare = torch.ops.flare
LENGTH, LAYERS, STREAMS = 20, 3, 4
ACCURATE = {"atol": 5e-5, "rtol": 1e-5}
KEPT_IN_FP32 = ("_hc.base", "_hc.scale", "gate.weight", "bias", "conv1d.weight", "A_log")
"""Ends of the names of what the canonical model keeps in FP32."""


class Served(nn.Module):
    """The first layers of the canonical model, and its norm."""

    def __init__(self, model, dtype=torch.float32):
        super().__init__()
        config = model.config
        self.eps, self.layers = config.rms_norm_eps, nn.ModuleList()
        for place, layer in enumerate(model.layers[:LAYERS]):
            feed = gated_mlp if isinstance(layer.mlp, Glm5NextTextMLP) else sigmoid_mixture
            self.layers.append(
                nn.ModuleDict(
                    {
                        "before": balanced_hyper_connection(layer.attn_hc, config, dtype),
                        "mixer": channel_delta_net(layer.self_attn, config, place, dtype),
                        "between": balanced_hyper_connection(layer.ffn_hc, config, dtype),
                        "feed": feed(layer.mlp, config, dtype),
                    }
                )
            )
        sources = [n for layer in model.layers[:LAYERS] for n in _norms(layer)]
        self.norms = nn.ParameterList([n.weight.to(dtype) for n in (*sources, model.norm)])
        self.requires_grad_(False)

    def forward(self, x, batch, state):
        """Embedded rows [N, H] -> hidden [N, H]."""
        residual, pending, norms = x.repeat(1, STREAMS), None, iter(self.norms)
        for layer in self.layers:
            x, *weights = layer["before"](residual, pending)
            mixed = layer["mixer"](flare.rms_norm(x, next(norms), self.eps), batch, state)
            x, *after = layer["between"](residual, Expansion(mixed, *weights))
            x, feed = flare.rms_norm(x, next(norms), self.eps), layer["feed"]
            fed = feed(x, batch.lanes) if isinstance(feed, ExpertMixture) else feed(x)
            pending = Expansion(fed, *after)
        pending.take(residual)
        return flare.rms_norm(flare.stream_mean(residual, STREAMS), next(norms), self.eps)


def _norms(layer):
    return layer.input_layernorm, layer.post_attention_layernorm


def expected(model, x):
    """Hidden [T, H] of one sequence of embedded rows."""
    streams = x.view(1, -1, 1, x.shape[1]).expand(-1, -1, STREAMS, -1)
    with torch.no_grad():
        for layer in model.layers[:LAYERS]:
            streams, _ = layer(streams.contiguous())
        return model.norm(model.hc_head(streams))[0]


def rows(length, seed=0):
    return torch.randn(length, 64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def model():
    return canonical_glm()


@pytest.fixture(scope="module")
def served(model):
    return Served(model)


@pytest.fixture
def storage(model):
    return PackedState(linear_schemes(model.config), lanes=2)


@pytest.mark.parametrize("length", [1, 2, 5, LENGTH, 64, 100])
def test_one_call_equals_the_canonical_layers(model, served, length):
    x, storage = rows(length), PackedState(linear_schemes(model.config), context=128)
    out = served(x, storage.batch([(0, length)]), storage.state)
    torch.testing.assert_close(out, expected(model, x), **ACCURATE)


def test_every_cut_continues(model, served, storage):
    x = rows(LENGTH)
    want = expected(model, x)
    for cuts in two_way_cuts(LENGTH):
        out = in_cuts(lambda part, *args: served(x[part], *args), storage, cuts)
        torch.testing.assert_close(out, want, **ACCURATE, msg=str(cuts))


def test_lanes_beside_each_other_have_their_own_bits(model, served):
    """A prompt and a continued sequence, idle lanes and padding that is no number."""
    first, second = rows(13, 1), rows(9, 2)
    together, alone = (PackedState(linear_schemes(model.config), lanes=2) for _ in range(2))
    for storage in (together, alone):
        served(second[:6], storage.batch([(1, 6)]), storage.state)
    x = torch.cat((second[6:7], first, torch.full((5, 64), torch.nan)))
    out = served(x, together.batch([(1, 1), (0, 13)], idle=2, padding=3), together.state)
    assert torch.equal(out[:1], served(second[6:7], alone.batch([(1, 1)]), alone.state))
    assert torch.equal(out[1:14], served(first, alone.batch([(0, 13)]), alone.state))
    for lane in range(2):
        assert torch.equal(together.sequence_bytes(lane)[0], alone.sequence_bytes(lane)[0])


def test_a_traced_step_computes_and_writes_the_same(model, served):
    """A prompt, then a token beside another prompt, with idle lanes and padding."""
    plain, traced = (PackedState(linear_schemes(model.config), lanes=2) for _ in range(2))
    for parts in ([(0, 7)], [(0, 1), (1, 12)]):
        first, second = (storage.batch(parts, idle=1, padding=2) for storage in (plain, traced))
        x = torch.cat((rows(sum(count for _, count in parts)), torch.full((3, 64), torch.nan)))
        program = traced_step(served, x, second, traced.state)
        assert torch.equal(program()[:-3], served(x, first, plain.state)[:-3])
    for lane in range(2):
        assert torch.equal(plain.sequence_bytes(lane)[0], traced.sequence_bytes(lane)[0])


def test_bf16_is_as_near_as_the_canonical_layers_in_bf16(model):
    """Against FP32 arithmetic on the same rounded weights, in most rows: some choose another expert."""
    rounded, exact = copy.deepcopy(model), copy.deepcopy(model)
    for (name, a), b in zip(rounded.named_parameters(), exact.parameters(), strict=True):
        if not name.endswith(KEPT_IN_FP32):
            a.data = a.data.bfloat16()
            b.data = a.data.float()
    served, ours, theirs = Served(exact, torch.bfloat16), [], []
    for seed in range(6):
        x = rows(60, seed).bfloat16()
        storage = PackedState(linear_schemes(model.config, DType.BF16))
        out = in_cuts(lambda part, *args, x=x: served(x[part], *args), storage, [43, 16, 1])
        assert out.dtype == torch.bfloat16
        want = expected(exact, x.float())
        ours.append((out - want).pow(2).mean(1).sqrt())
        theirs.append((expected(rounded, x) - want).pow(2).mean(1).sqrt())
    assert float(torch.cat(ours).median()) < 1.1 * float(torch.cat(theirs).median())

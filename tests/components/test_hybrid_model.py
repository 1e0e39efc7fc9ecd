"""All replacement modules together against the canonical model: a whole prompt, cut and restored."""

import pytest
import torch
from canonical import (
    canonical,
    delta_net,
    expert_mixture,
    group_rotary,
    hyper_connection,
    ngram_hash,
    ngram_injection,
    schemes,
    selected_attention,
)
from packed import PackedState, in_cuts, two_way_cuts
from torch import nn

from flare_components.modules import GatedDeltaNet, Injection

LENGTH, BOUNDARY = 40, 7


class Served(nn.Module):
    """The canonical decoder, of replacement modules."""

    def __init__(self, model):
        super().__init__()
        config, decoder = model.config, model.model
        self.streams, self.embed, self.head = config.hc_count, decoder.embed_tokens, model.lm_head
        self.rotary = group_rotary(model)
        ngrams = decoder.layers[1].ple
        self.table, self.hash = ngrams.ple_embedding.ngram_embedding, ngram_hash(ngrams, config)
        self.layers, linear = nn.ModuleList(), 0
        for layer in decoder.layers:
            if layer.layer_type == "linear_attention":
                mixer = delta_net(layer.linear_attn, config, linear)
                linear += 1
            else:
                mixer = selected_attention(layer.self_attn, config)
            parts = {
                "before": hyper_connection(layer.attn_hyper_connection, config),
                "mixer": mixer,
                "between": hyper_connection(layer.mlp_hyper_connection, config),
                "experts": expert_mixture(layer.mlp, config),
            }
            if layer.ple is not None:
                parts["ngrams"] = ngram_injection(layer.ple, config)
            self.layers.append(nn.ModuleDict(parts))
        self.last = hyper_connection(decoder.hyper_connection_mixer, config)

    def forward(self, batch, state):
        residual = self.embed(batch.ids.clamp_min(0)).repeat(1, self.streams)
        embeddings = self.table(self.hash(batch, state).clamp_min(0)).flatten(1)
        tables = self.rotary(batch.positions.expand(3, -1), batch, state)
        pending = None
        for layer in self.layers:
            if "ngrams" in layer:
                layer["ngrams"](residual, pending, embeddings, batch, state)
                pending = None
            x, measures = layer["before"](residual, pending)
            mixer = layer["mixer"]
            extra = () if isinstance(mixer, GatedDeltaNet) else (tables,)
            pending = Injection(mixer(x, *extra, batch, state), measures)
            x, measures = layer["between"](residual, pending)
            pending = Injection(layer["experts"](x, batch.lanes), measures)
        mixed, _ = self.last(residual, pending)
        return self.head(mixed)


@pytest.fixture(scope="module")
def model():
    return canonical()


@pytest.fixture(scope="module")
def served(model):
    return Served(model)


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

"""Streams mixed by a doubly stochastic matrix against the canonical module and the sums around it."""

import pytest
import torch
from canonical_glm import balanced_hyper_connection, canonical_glm

from flare_components.modules import Expansion

STREAMS, HIDDEN = 4, 64


@pytest.fixture(scope="module")
def model():
    return canonical_glm()


@pytest.fixture
def streams():
    return torch.randn(5, STREAMS * HIDDEN, generator=torch.Generator().manual_seed(0))


def test_two_connections_in_a_row(model, streams):
    """The first as such, the second as it takes what is pending."""
    layer = model.layers[2]
    first, second = (balanced_hyper_connection(s, model.config) for s in (layer.attn_hc, layer.ffn_hc))
    before = streams.view(1, 5, STREAMS, HIDDEN).clone()
    x, post, comb = first(streams, None)
    want_post, want_comb, want = layer.attn_hc(before)
    for a, b in ((x, want), (post, want_post), (comb, want_comb)):
        torch.testing.assert_close(a, b[0], atol=1e-6, rtol=1e-5)
    assert torch.equal(streams.view(before.shape), before)
    values = torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(1))
    x, post, comb = second(streams, Expansion(values, post, comb))
    taken = want_post.unsqueeze(-1) * values.view(1, 5, 1, HIDDEN)
    taken = taken + want_comb.transpose(-1, -2) @ before
    torch.testing.assert_close(streams.view(before.shape), taken, atol=1e-6, rtol=1e-5)
    want_post, want_comb, want = layer.ffn_hc(taken)
    for a, b in ((x, want), (post, want_post), (comb, want_comb)):
        torch.testing.assert_close(a, b[0], atol=2e-6, rtol=1e-5)

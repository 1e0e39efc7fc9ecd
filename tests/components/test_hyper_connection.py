"""Residual streams against the canonical module and the canonical sums around it."""

import pytest
import torch
from canonical import canonical, hyper_connection

from flare_components.modules import Injection

STREAMS, HIDDEN = 4, 64


@pytest.fixture(scope="module")
def model():
    return canonical()


@pytest.fixture
def streams():
    return torch.randn(5, STREAMS * HIDDEN, generator=torch.Generator().manual_seed(0))


def taken(streams, values, injection):
    """The canonical sum of a layer's output into the streams."""
    return streams + (values.unsqueeze(-2) * injection.unsqueeze(-1)).flatten(-2)


def test_the_first_mix_equals_the_canonical_module(model, streams):
    source = model.model.layers[0].attn_hyper_connection
    module = hyper_connection(source, model.config)
    before = streams.clone()
    mixed, measures = module(streams, None)
    want, residual, injection = source(before)
    torch.testing.assert_close(mixed, want, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(2 * torch.sigmoid(measures / STREAMS), injection, atol=1e-6, rtol=1e-5)
    assert torch.equal(streams, residual)


def test_an_output_is_taken_before_the_next_norm(model, streams):
    layer = model.model.layers[2]
    modules = [
        hyper_connection(s, model.config) for s in (layer.attn_hyper_connection, layer.mlp_hyper_connection)
    ]
    values = torch.randn(5, HIDDEN)
    want_mixed, _, injection = layer.attn_hyper_connection(streams)
    want = taken(streams, values, injection)
    mixed, measures = modules[0](streams, None)
    torch.testing.assert_close(mixed, want_mixed, atol=1e-6, rtol=1e-5)
    mixed, _ = modules[1](streams, Injection(values, measures))
    torch.testing.assert_close(streams, want, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(mixed, layer.mlp_hyper_connection(want)[0], atol=2e-6, rtol=1e-5)


def test_the_last_mixer_injects_nothing(model, streams):
    source = model.model.hyper_connection_mixer
    mixed, measures = hyper_connection(source, model.config)(streams, None)
    torch.testing.assert_close(mixed, source(streams), atol=1e-6, rtol=1e-5)
    assert measures.shape == (5, 0)

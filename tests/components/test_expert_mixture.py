"""Routed and shared experts against the canonical blocks: softmax with a gated shared expert, and sigmoid
with a correction bias, limited gates and all of the shared expert."""

import pytest
import torch
from canonical import canonical, expert_mixture
from canonical_glm import canonical_glm, gated_mlp, sigmoid_mixture


def softmax():
    source = canonical().model.layers[0].mlp
    return source, expert_mixture(source, canonical().config)


def sigmoid():
    source = canonical_glm().layers[1].mlp
    return source, sigmoid_mixture(source, canonical_glm().config)


@pytest.fixture(scope="module", params=[softmax, sigmoid], ids=["softmax", "sigmoid"])
def mixture(request):
    return request.param()


@pytest.fixture
def source(mixture):
    return mixture[0]


@pytest.fixture
def module(mixture):
    return mixture[1]


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_rows_equal_the_canonical_block(source, module, rows):
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(rows))
    out = module(x, torch.zeros(rows, dtype=torch.int32))
    torch.testing.assert_close(out, source(x.unsqueeze(0))[0], atol=1e-5, rtol=1e-5)


def test_a_row_has_the_same_bits_beside_any_others(module):
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    lanes = torch.zeros(64, dtype=torch.int32)
    whole = module(x, lanes)
    for rows in (1, 2, 3, 5, 17):
        assert torch.equal(module(x[:rows], lanes[:rows]), whole[:rows])


def test_padding_reaches_no_routed_expert(module):
    x = torch.randn(3, 64)
    x[1] = torch.nan
    lanes = torch.tensor([0, -1, 1], dtype=torch.int32)
    alone = module(x[::2], lanes[::2])
    assert torch.equal(module(x, lanes)[::2], alone)
    experts = module.router(x, lanes)[1]
    assert experts[1].tolist() == [-1] * 3
    assert bool((experts[::2] >= 0).all())


def test_the_bias_chooses_in_the_canonical_block_too():
    """What the tests above compare is not what plain scores would give."""
    source, module = sigmoid()
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    lanes = torch.zeros(64, dtype=torch.int32)
    weights, chosen, _ = module.router(x, lanes)
    _, want_weights, want = source.gate(x)
    order = want.argsort(1)
    assert torch.equal(chosen.long().sort(1)[0], want.gather(1, order))
    weights = weights.gather(1, chosen.long().argsort(1))
    torch.testing.assert_close(weights, want_weights.gather(1, order), atol=1e-6, rtol=1e-5)
    plain = torch.sigmoid(module.router.proj(x)).topk(3)[1]
    assert not torch.equal(plain.sort(1)[0], chosen.long().sort(1)[0])


def test_a_dense_layer_with_limits_equals_the_canonical_one():
    source, config = canonical_glm().layers[0].mlp, canonical_glm().config
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(2)) * 3
    assert float(source.up_proj(x).abs().gt(config.swiglu_limit).float().mean()) > 0.2
    torch.testing.assert_close(gated_mlp(source, config)(x), source(x), atol=1e-5, rtol=1e-5)

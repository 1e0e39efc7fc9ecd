"""Routed and shared experts against the canonical block."""

import pytest
import torch
from canonical import canonical, expert_mixture


@pytest.fixture(scope="module")
def source():
    return canonical().model.layers[0].mlp


@pytest.fixture(scope="module")
def module(source):
    return expert_mixture(source, canonical().config)


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
    _, experts = torch.ops.flare.route_softmax(torch.randn(3, 8), lanes, 3)
    assert experts[1].tolist() == [-1] * 3

"""The pools that an indexer selects against those of the canonical indexer."""

import pytest
import torch
from latents import BUDGET, GROUP, HIDDEN, canonical_layer, replacement, schemes
from packed import PackedState

LENGTH = 120


@pytest.fixture(scope="module")
def layer():
    return canonical_layer()


def compressed(layer, x):
    return layer.q_a_layernorm(layer.q_a_proj(x))


def canonical_tokens(layer, x):
    """The tokens that each row attends to."""
    mask = torch.ones(1, len(x), dtype=torch.bool)
    chosen = layer.indexer(x.unsqueeze(0), compressed(layer, x).unsqueeze(0), mask, None)[0]
    return [set(row.tolist()) - {-1} for row in chosen]


def tokens_of(selected, row):
    """Of a row's groups and of the open group."""
    pools = [pool for pool in selected.tolist() if pool >= 0]
    assert pools == sorted(set(pools))
    whole = {GROUP * pool + place for pool in pools for place in range(GROUP)}
    return whole | set(range((row + 1) // GROUP * GROUP, row + 1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cut", [LENGTH, 1, 18, 19, 20, 63, 64, 65])
def test_the_same_tokens_are_selected(layer, seed, cut):
    x = torch.randn(LENGTH, HIDDEN, generator=torch.Generator().manual_seed(seed))
    indexer = replacement(layer).indexer
    storage, start, selected = PackedState(schemes(layer), context=LENGTH), 0, []
    for count in (cut, LENGTH - cut):
        part = slice(start, start + count)
        if count:
            batch = storage.batch([(0, count)])
            selected.append(indexer(x[part], compressed(layer, x[part]), batch, storage.state))
        start += count
    ours = [tokens_of(groups, row) for row, groups in enumerate(torch.cat(selected))]
    assert ours == canonical_tokens(layer, x)
    assert [len(tokens) for tokens in ours[:BUDGET]] == list(range(1, BUDGET + 1))
    # Behind the budget a selection is not the last tokens, nor is it the first.
    assert sum(0 in tokens for tokens in ours[BUDGET + GROUP :]) < LENGTH - 2 * BUDGET


def test_pooled_keys_are_the_canonical_ones(layer):
    x = torch.randn(LENGTH, HIDDEN, generator=torch.Generator().manual_seed(4))
    storage = PackedState(schemes(layer), context=LENGTH)
    indexer = layer.indexer
    packed = torch.cat(
        (
            indexer.k_norm(indexer.wk(x)),
            x @ indexer.index_kpool_compress_gate.t(),
            torch.ones(LENGTH, 1),
        ),
        1,
    )
    want = indexer.get_pooled_states(packed.unsqueeze(0))[0][0]
    replacement(layer).indexer(x, compressed(layer, x), storage.batch([(0, LENGTH)]), storage.state)
    got = storage.state.pages["selector"][0][storage.table[0].long()].flatten(0, 1)[: LENGTH // GROUP]
    torch.testing.assert_close(got, want, atol=2e-6, rtol=2e-6)

"""N-gram hash and injection against the canonical layer, whole, cut and beside others."""

import pytest
import torch
from canonical import canonical, ngram_hash, ngram_injection, schemes
from packed import PackedState, in_cuts, two_way_cuts
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextNGramEmbedding

from flare_components.modules import Injection, hash_constants

LENGTH, WIDTH, BOUNDARY = 40, 256, 7


@pytest.fixture(scope="module")
def model():
    return canonical()


@pytest.fixture(scope="module")
def source(model):
    return model.model.layers[1].ple


@pytest.fixture(scope="module")
def modules(model, source):
    return ngram_hash(source, model.config), ngram_injection(source, model.config)


@pytest.fixture
def storage(model):
    return PackedState(schemes(model.config), lanes=3)


def sequence(length, seed=0):
    """Ids with boundary tokens alone, in a row, and at the ends; residual streams."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 512, (length,), generator=generator, dtype=torch.int32)
    for place in (0, 9, 20, 21, 23, length - 1):
        if place < length and length > 3:
            ids[place] = BOUNDARY
    return ids, torch.randn(length, WIDTH, generator=generator)


def injected(modules, source, streams, batch, state, pending=None):
    """streams after the injection."""
    rows = modules[0](batch, state)
    embeddings = torch.nn.functional.embedding(rows.clamp_min(0), source.ple_embedding.ngram_embedding.weight)
    residual = streams.clone()
    modules[1](residual, pending, embeddings.flatten(1), batch, state)
    return residual


def canonical_result(source, ids, streams):
    return streams + source(streams.unsqueeze(0), ids.unsqueeze(0), None)[0]


@pytest.mark.parametrize("length", [1, 2, 3, 9, 10, LENGTH])
def test_one_call_equals_the_canonical_layer(source, modules, storage, length):
    ids, streams = sequence(length)
    out = injected(modules, source, streams, storage.batch([(0, length)], ids), storage.state)
    torch.testing.assert_close(out, canonical_result(source, ids, streams), atol=1e-5, rtol=1e-5)


def test_every_cut_continues(source, modules, storage):
    ids, streams = sequence(LENGTH)
    want = canonical_result(source, ids, streams)
    for cuts in two_way_cuts(LENGTH):
        out = in_cuts(lambda part, *args: injected(modules, source, streams[part], *args), storage, cuts, ids)
        torch.testing.assert_close(out, want, atol=1e-5, rtol=1e-5, msg=str(cuts))


def test_the_state_does_not_depend_on_the_cut(source, modules, storage):
    """Token ids are exact, and the convolution sees the same inputs in the same order."""
    ids, streams = sequence(LENGTH)
    kept = []
    for cuts in ([LENGTH], [1, LENGTH - 1], [11, 1, 28], [1] * LENGTH):
        in_cuts(lambda part, *args: injected(modules, source, streams[part], *args), storage, cuts, ids)
        row = storage.rows[0]
        kept.append([storage.state.rows[name][0][row].clone() for name in ("tokens", "ngram_conv")])
    for tokens, _ in kept:
        assert tokens.tolist() == ids[-2:].tolist()
    for _, history in kept[1:]:
        torch.testing.assert_close(history, kept[0][1], atol=1e-5, rtol=1e-5)


def test_the_beginning_does_not_depend_on_what_the_row_held(source, modules, storage):
    ids, _ = sequence(LENGTH)
    row = storage.rows[0]
    rows = []
    for stale in (0, 5, -1):
        storage.begin(0)
        storage.state.rows["tokens"][0][row] = stale
        rows.append(modules[0](storage.batch([(0, 1)], ids[:1]), storage.state))
        assert storage.state.rows["tokens"][0][row].tolist() == [-1, ids[0]]
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0], rows[2])


def test_lanes_do_not_touch_each_other(model, source, modules):
    inputs = [sequence(LENGTH, seed) for seed in range(3)]
    together, alone = (PackedState(schemes(model.config), lanes=3) for _ in range(2))
    done = [0, 0, 0]
    for parts in ([(0, 5), (1, 1)], [(2, 7), (0, 1), (1, 9)], [(1, 1), (2, 1), (0, 1)], [(0, 20)]):
        spans = [slice(done[lane], done[lane] + count) for lane, count in parts]
        ids = torch.cat([inputs[lane][0][span] for (lane, _), span in zip(parts, spans, strict=True)])
        own = [inputs[lane][1][span] for (lane, _), span in zip(parts, spans, strict=True)]
        batch = together.batch(parts, ids, idle=2, padding=3)
        x = torch.cat((*own, torch.full((5, WIDTH), torch.nan)))
        out = injected(modules, source, x, batch, together.state).split([len(rows) for rows in own] + [5])
        for (lane, count), span, streams, got in zip(parts, spans, own, out, strict=False):
            lone = alone.batch([(lane, count)], inputs[lane][0][span])
            assert torch.equal(got, injected(modules, source, streams, lone, alone.state))
            done[lane] += count
    for lane in range(3):
        for a, b in zip(together.sequence_bytes(lane), alone.sequence_bytes(lane), strict=True):
            assert torch.equal(a, b)


def test_padding_writes_nothing(source, modules, storage):
    before = storage.row_bytes.clone()
    batch = storage.batch([(0, 0)], torch.empty(0, dtype=torch.int32), idle=2, padding=4)
    assert bool((modules[0](batch, storage.state) == -1).all())
    injected(modules, source, torch.full((6, WIDTH), torch.nan), batch, storage.state)
    assert torch.equal(storage.row_bytes, before)


def test_a_pending_output_is_taken_first(source, modules, storage):
    ids, streams = sequence(4)
    values, measures = torch.randn(4, 64), torch.randn(4, 4)
    share = 2 * torch.sigmoid(measures / 4)
    whole = streams + (values.unsqueeze(1) * share.unsqueeze(2)).flatten(1)
    out = injected(
        modules, source, streams, storage.batch([(0, 4)], ids), storage.state, Injection(values, measures)
    )
    torch.testing.assert_close(out, canonical_result(source, ids, whole), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("table", [0, 1])
@pytest.mark.parametrize("smallest", [97, 20_000_000])
def test_constants_are_the_canonical_ones(model, table, smallest):
    config = model.config
    constants = hash_constants(
        order=3, heads=4, vocabulary=512, smallest_modulus=smallest, seed=config.seed, table=table
    )
    copied = type(config)(**{**config.to_dict(), "ngram_vocab_size_base": smallest})
    with torch.device("meta"):
        # Buffers made of Python lists are on the meta device too; the numbers stay in lists.
        want = Qwen4ExpTextNGramEmbedding(copied, 64, 1, table)
    assert constants.moduli.tolist() == want.head_vocab_sizes
    assert constants.offsets.tolist() == want.head_offsets
    assert constants.rows == want.total_vocab_size
    if table == 0:
        assert torch.equal(constants.multipliers, model.model.layers[1].ple.ple_embedding.layer_multipliers)


def test_real_constants_fill_the_published_table():
    """Table of 320,001,536 rows, 16 heads: the sum of sixteen primes, filled up to a multiple of 128."""
    constants = hash_constants(
        order=3, heads=8, vocabulary=248_320, smallest_modulus=20_000_000, seed=1234, table=0
    )
    assert -(-constants.rows // 128) * 128 == 320_001_536

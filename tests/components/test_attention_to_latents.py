"""Latent attention with a pooled indexer against the canonical module: whole, cut, restored, in company."""

import copy

import pytest
import torch
from latents import BUDGET, GROUP, HIDDEN, canonical_layer, expected, replacement, schemes
from packed import PackedState, in_cuts, two_way_cuts
from traced_step import traced_step

from flare.contract import DType

LENGTH = 45
ACCURATE = {"atol": 5e-6, "rtol": 5e-6}


@pytest.fixture(scope="module")
def layer():
    return canonical_layer()


@pytest.fixture(scope="module")
def module(layer):
    return replacement(layer)


@pytest.fixture
def storage(layer):
    return PackedState(schemes(layer), lanes=3)


def sequence(length, seed=0):
    return torch.randn(length, HIDDEN, generator=torch.Generator().manual_seed(seed))


def run(module, x, storage, cuts):
    return in_cuts(lambda part, *args: module(x[part], *args), storage, cuts)


BORDERS = sorted(
    {1, 2, LENGTH, BUDGET + GROUP - 1, BUDGET + GROUP, BUDGET + GROUP + 1}
    | {GROUP * k + i for k in (1, 2, 4, 5, 6) for i in (-1, 0, 1)}
)
"""Around pools, and around the length from which tokens are selected: up to 19 all are attended to."""


@pytest.mark.parametrize("length", BORDERS)
def test_one_call_equals_the_canonical_module(layer, module, storage, length):
    x = sequence(length)
    out = module(x, storage.batch([(0, length)]), storage.state)
    torch.testing.assert_close(out, expected(layer, x), **ACCURATE)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_cut_continues(layer, module, storage, seed):
    x = sequence(LENGTH, seed)
    want = expected(layer, x)
    for cuts in two_way_cuts(LENGTH):
        torch.testing.assert_close(run(module, x, storage, cuts), want, **ACCURATE, msg=str(cuts))


@pytest.mark.parametrize("page_tokens", [4, 8, 64])
def test_pages_of_any_size_hold_whole_pools(layer, module, page_tokens):
    x = sequence(LENGTH)
    want = expected(layer, x)
    storage = PackedState(schemes(layer), page_tokens=page_tokens)
    for cuts in ([LENGTH], [7, 1, 1, 8, 28], [21, 24], [1] * LENGTH):
        torch.testing.assert_close(run(module, x, storage, cuts), want, **ACCURATE, msg=str(cuts))


@pytest.mark.parametrize(
    "changes",
    [
        {"index_kpool": 1},
        {"index_kpool": 8, "index_topk": 24},
        {"index_topk": 64},
        {"attention_bias": True},
        {"v_head_dim": 8},
        {"v_head_dim": 24},
        {"kv_lora_rank": 8, "num_attention_heads": 3, "num_key_value_heads": 3},
    ],
    ids=str,
)
def test_other_geometries(changes):
    layer = canonical_layer(**changes)
    module, x = replacement(layer), sequence(LENGTH)
    storage = PackedState(schemes(layer))
    for cuts in ([LENGTH], [22, 23], [1] * LENGTH):
        torch.testing.assert_close(
            run(module, x, storage, cuts), expected(layer, x), **ACCURATE, msg=str(cuts)
        )


def test_real_head_sizes():
    """Heads of 256, latents of 512, 32 index heads of 128, pages of 256; fewer heads and a smaller budget."""
    layer = canonical_layer(
        num_attention_heads=8,
        num_key_value_heads=8,
        kv_lora_rank=512,
        qk_nope_head_dim=256,
        v_head_dim=256,
        index_n_heads=32,
        index_head_dim=128,
        index_topk=64,
    )
    x = sequence(300)
    storage = PackedState(schemes(layer), page_tokens=256, context=512)
    out = run(replacement(layer), x, storage, [60, 195, 1, 1, 43])
    torch.testing.assert_close(out, expected(layer, x), **ACCURATE)


@pytest.mark.parametrize("cuts", [[LENGTH], [18, 27], [1] * LENGTH], ids=len)
def test_a_partition_determines_every_bit_of_state(layer, module, cuts):
    x = sequence(LENGTH)
    states = []
    for seed in (1, 2):
        storage = PackedState(schemes(layer), lanes=2, seed=seed)
        run(module, x, storage, cuts)
        states.append(storage.sequence_bytes(0))
    for a, b in zip(*states, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kept", [1, 3, 4, 5, 7, 8, 9, 19, 20, 21, 44])
def test_a_copied_row_and_pages_continue_with_the_same_bits(module, storage, kept):
    """Lane 1 takes over lane 0's row and pages at any count; both then compute the same."""
    x = sequence(LENGTH)
    module(x[:kept], storage.batch([(0, kept)]), storage.state)
    storage.row_bytes[storage.rows[1]] = storage.row_bytes[storage.rows[0]]
    storage.page_bytes[storage.table[1].long()] = storage.page_bytes[storage.table[0].long()]
    storage.consumed[1] = kept
    rest = LENGTH - kept
    outs = [module(x[kept:], storage.batch([(lane, rest)]), storage.state) for lane in (0, 1)]
    assert torch.equal(*outs)
    assert all(map(torch.equal, storage.sequence_bytes(0), storage.sequence_bytes(1)))


def test_lanes_do_not_touch_each_other(layer, module, storage):
    inputs = [sequence(LENGTH, seed) for seed in range(3)]
    wanted = [expected(layer, x) for x in inputs]
    done = [0, 0, 0]
    steps = [
        [(0, 21), (1, 1)],
        [(2, 7), (0, 1), (1, 22)],
        [(1, 1), (2, 1), (0, 1)],
        [(0, 10), (1, 1), (2, 37)],
    ]
    for parts in steps:
        spans = [slice(done[lane], done[lane] + count) for lane, count in parts]
        rows = [inputs[lane][span] for (lane, _), span in zip(parts, spans, strict=True)]
        batch = storage.batch(parts, idle=2, padding=3)
        out = module(torch.cat([*rows, torch.full((5, HIDDEN), torch.nan)]), batch, storage.state)
        for (lane, count), span, got in zip(
            parts, spans, out.split([len(own) for own in rows] + [5]), strict=False
        ):
            torch.testing.assert_close(got, wanted[lane][span], **ACCURATE)
            done[lane] += count


def test_padding_writes_nothing(module, storage):
    before = storage.row_bytes.clone(), storage.page_bytes.clone()
    batch = storage.batch([(0, 0)], idle=2, padding=4)
    out = module(torch.full((6, HIDDEN), torch.nan), batch, storage.state)
    assert not out.any()
    assert torch.equal(storage.row_bytes, before[0])
    assert torch.equal(storage.page_bytes, before[1])


def test_bf16_is_as_near_as_the_canonical_module_in_bf16():
    """Against FP32 arithmetic on the same rounded weights and rows, in most rows: some select other pools."""
    rounded, exact = (copy.deepcopy(canonical_layer()) for _ in range(2))
    rounded.bfloat16()
    exact.load_state_dict({name: weight.float() for name, weight in rounded.state_dict().items()})
    module, ours, theirs = replacement(rounded, torch.bfloat16), [], []
    for seed in range(4):
        x = sequence(LENGTH, seed).bfloat16()
        want = expected(exact, x.float())
        out = run(module, x, PackedState(schemes(rounded, DType.BF16)), [21, 20, 1, 1, 2])
        assert out.dtype == torch.bfloat16
        ours.append((out - want).pow(2).mean(1).sqrt())
        theirs.append((expected(rounded, x) - want).pow(2).mean(1).sqrt())
    assert float(torch.cat(ours).median()) < 1.2 * float(torch.cat(theirs).median())


def test_a_traced_step_computes_and_writes_the_same(layer, module):
    x, steps = sequence(LENGTH), ((0, 30), (30, 41))
    plain, traced = (PackedState(schemes(layer)) for _ in range(2))
    for start, stop in steps:
        batches = [storage.batch([(0, stop - start)], idle=1, padding=2) for storage in (plain, traced)]
        rows = torch.cat((x[start:stop], torch.full((3, HIDDEN), torch.nan)))
        program = traced_step(module, rows, batches[1], traced.state)
        assert torch.equal(program(), module(rows, batches[0], plain.state))
        assert all(map(torch.equal, plain.sequence_bytes(0), traced.sequence_bytes(0)))

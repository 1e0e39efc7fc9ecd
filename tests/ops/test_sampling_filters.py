"""Filters against their definition, on both the bounded passes and the full sort."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flare_components.ops import filters
from flare_components.ops.filters import Filters, candidates, keep

SLACK = 1e-9  # cases nearer than this to a boundary depend on rounding, in any implementation


def kept_by_definition(row: np.ndarray, f: Filters) -> set[int]:
    """The drawable tokens, each filter applied to what the one before it left."""
    finite = [i for i, x in enumerate(row) if x > -math.inf]
    peak = float(max(row))
    weight = {i: math.exp((float(row[i]) - peak) / f.temperature) for i in finite}
    assume(all(w == 0 or abs(w - f.min_p) > SLACK or w == f.min_p == 1 for w in weight.values()))
    kept = [i for i in finite if weight[i] >= f.min_p]
    if 0 < f.top_k < len(row):
        limit = sorted((row[i] for i in kept), reverse=True)[: f.top_k][-1]
        kept = [i for i in kept if row[i] >= limit]
    if f.top_p < 1:
        total = math.fsum(weight[i] for i in kept)
        above = {i: math.fsum(weight[j] for j in kept if row[j] > row[i]) / total for i in kept}
        assume(all(abs(a - f.top_p) > SLACK for a in above.values()))
        kept = [i for i in kept if above[i] < f.top_p]
    return {i for i in kept if weight[i] > 0}


def drawable(row: np.ndarray, f: Filters) -> set[int]:
    ids, weights = keep(row, float(row.max()), f)
    ids = np.arange(row.size) if ids is None else ids
    assert list(ids) == sorted(ids), "vocabulary order"
    expected = np.exp((row[ids].astype(np.float64) - float(row.max())) / f.temperature)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)
    return {int(i) for i, w in zip(ids, weights, strict=True) if w > 0}


LOGITS = st.lists(
    st.sampled_from([-math.inf, -8.0, -1.5, -0.5, 0.0, 0.25, 1.0, 1.0009765625, 2.0]), min_size=1, max_size=40
).filter(lambda values: max(values) > -math.inf)
FILTERS = st.builds(
    Filters,
    temperature=st.sampled_from([0.05, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 3, 5, 9, 100]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.7, 0.45, 0.2, 1e-6]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.3, 1.0]),
)


@pytest.mark.parametrize("passes", [(256, 2048), (1, 2), (2, 7), ()], ids=str)
@settings(max_examples=150, deadline=None)
@given(values=LOGITS, f=FILTERS)
def test_filters_keep_what_their_definition_says(passes, values, f):
    row = np.array(values, np.float32)
    expected = kept_by_definition(row, f)
    default, filters.PASSES = filters.PASSES, passes
    try:
        assert drawable(row, f) == expected
    finally:
        filters.PASSES = default


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [0.3, 2.0, 6.0])
def test_a_large_vocabulary_is_cut_where_the_full_sort_cuts_it(seed, scale, monkeypatch):
    rng = np.random.default_rng(seed)
    # Rounded like bfloat16 logits, so that ties are everywhere.
    row = (np.round(rng.normal(size=6000) * scale * 16) / 16).astype(np.float32)
    cases = [
        Filters(t, k, p, m)
        for t in (0.2, 1.0)
        for k in (0, 20, 256, 3000)
        for p in (1.0, 0.95, 0.5)
        for m in (0.0, 0.05)
    ]
    bounded = [keep(row, float(row.max()), f) for f in cases]
    monkeypatch.setattr(filters, "PASSES", ())
    for f, (ids, weights) in zip(cases, bounded, strict=True):
        full_ids, full_weights = keep(row, float(row.max()), f)
        np.testing.assert_array_equal(ids, full_ids, err_msg=str(f))
        np.testing.assert_array_equal(weights, full_weights, err_msg=str(f))


@pytest.mark.parametrize("size", [1, 5, 64, 777, 6000])
@pytest.mark.parametrize("least", [1, 2, 30, 256])
def test_candidates_are_all_tokens_above_a_bound(size, least):
    row = np.round(np.random.default_rng(size).normal(size=size) * 8).astype(np.float32)
    ids = candidates(row, least)
    assert ids.size >= min(least, size)
    assert ids.tolist() == np.flatnonzero(row >= row[ids].min()).tolist()
    if size == 6000:
        assert ids.size < size / 2, "the pass is bounded"


def test_every_token_tied_with_the_kth_stays():
    row = np.full(5000, -5.0, np.float32)
    row[::10] = 3.0  # 500 equal values: more than the first pass sees
    row[7] = 4.0
    assert drawable(row, Filters(1.0, 20, 1.0, 0.0)) == {7, *range(0, 5000, 10)}
    assert drawable(row, Filters(1.0, 1, 1.0, 0.0)) == {7}


def test_top_p_keeps_whole_ties_and_the_token_that_reaches_it():
    row = np.array([-1.0, 0.0, -1.0, -3.0], np.float32)
    first, second, total = 1.0, 2 * math.exp(-1), 1 + 2 * math.exp(-1) + math.exp(-3)
    assert drawable(row, Filters(1.0, 0, first / total - 1e-9, 0.0)) == {1}
    assert drawable(row, Filters(1.0, 0, first / total + 1e-9, 0.0)) == {0, 1, 2}
    assert drawable(row, Filters(1.0, 0, (first + second) / total - 1e-9, 0.0)) == {0, 1, 2}
    assert drawable(row, Filters(1.0, 0, (first + second) / total + 1e-9, 0.0)) == {0, 1, 2, 3}


def test_top_p_boundary_is_exact_for_equal_tokens():
    row = np.zeros(4, np.float32)
    # Nothing lies strictly above any of them: all four stay under any top-p.
    assert drawable(row, Filters(1.0, 0, 0.25, 0.0)) == {0, 1, 2, 3}


def test_top_p_counts_only_what_min_p_and_top_k_left():
    # Weights 1, 1, then 98 of one half: of everything the first two hold 4%, of the top 2 they hold all.
    row = np.full(100, math.log(0.5), np.float32)
    row[[30, 60]] = 0.0
    row[60] = 0.001
    assert drawable(row, Filters(1.0, 2, 0.6, 0.0)) == {30, 60}
    assert drawable(row, Filters(1.0, 2, 0.5, 0.0)) == {60}
    assert drawable(row, Filters(1.0, 0, 0.5, 0.9)) == {60}
    assert len(drawable(row, Filters(1.0, 0, 0.6, 0.0))) == 100

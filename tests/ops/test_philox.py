"""Philox against the known answers of its authors, and the uniform made from it."""

import pytest
from scipy import stats

from flare_components.ops.philox import philox4x32, uniform


# `philox4x32 10` lines of tests/kat_vectors in the Random123 distribution: counter, key, answer.
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter, key, answer):
    assert philox4x32(counter, key) == answer


def test_uniform_reads_one_block_per_draw():
    high, low = 0x6627E8D5, 0xE169C58D
    assert uniform(0, 0) == ((high << 20 | low >> 12) + 0.5) / 2**52

    block = philox4x32((7, 3, 0, 0), (0x89ABCDEF, 0xFEDCBA98))
    expected = ((block[0] << 20 | block[1] >> 12) + 0.5) / 2**52
    assert uniform(0xFEDCBA9889ABCDEF, 7 | 3 << 32) == expected
    # The same key as the i64 that a buffer holds.
    assert uniform(0xFEDCBA9889ABCDEF - (1 << 64), 7 | 3 << 32) == expected


def test_uniform_stays_inside_the_open_interval(monkeypatch):
    ends = {0: 0.0, 0xFFFFFFFF: 1.0}
    for word, end in ends.items():
        monkeypatch.setattr("flare_components.ops.philox.philox4x32", lambda *_, word=word: (word,) * 4)
        value = uniform(1, 1)
        assert 0.0 < value < 1.0
        assert value == pytest.approx(end, abs=1e-15)


@pytest.mark.parametrize("along", ["counter", "seed"])
def test_uniform_is_uniform(along):
    values = [uniform(5, n) if along == "counter" else uniform(n, 5) for n in range(20_000)]
    assert stats.kstest(values, "uniform").pvalue > 1e-3
    # Consecutive draws are not correlated.
    assert abs(stats.pearsonr(values[:-1], values[1:]).statistic) < 0.03

"""What `bind` makes of operators with constant operands when a core is loaded."""

import pytest
import torch
from precision import assert_rounded, same_bits

from flare_components.ops import bind, reference


def test_programs_share_one_packed_copy():
    weight, cache = torch.randn(40, 32), {}
    first = bind("flare::linear", (None, weight, None), (False, True, False), cache)
    second = bind("flare::linear.default", (None, weight, None), (False, True, False), cache)
    assert first.nbytes >= weight.nbytes
    assert second.nbytes == 0
    x = torch.randn(5, 32)
    assert same_bits(first.call(x, None, None), second.call(x, None, None))


def test_weights_of_one_storage_are_told_apart():
    both, cache = torch.randn(80, 32), {}
    x = torch.randn(4, 32)
    for weight in (both[:40], both[40:], both):
        bound = bind("flare::linear", (None, weight, None), (False, True, False), cache)
        assert bound.nbytes >= weight.nbytes
        assert_rounded(bound.call(x, None, None), reference.linear(x, weight, None), units=4, floor=30)


def test_constant_bias_is_kept_and_a_changing_one_is_read():
    weight, bias, x = torch.randn(40, 32), torch.randn(40), torch.randn(2, 32)
    kept = bind("flare::linear", (None, weight, bias), (False, True, True), {})
    read = bind("flare::linear", (None, weight, bias), (False, True, False), {})
    expected = reference.linear(x, weight, bias)
    doubled = reference.linear(x, weight, 2 * bias)
    bias_now = bias.clone()
    bias.fill_(torch.nan)  # the buffer of a constant operand is released after loading
    assert_rounded(kept.call(x, None, None), expected, units=4, floor=30)
    assert_rounded(read.call(x, None, bias_now), expected, units=4, floor=30)
    assert_rounded(read.call(x, None, 2 * bias_now), doubled, units=4, floor=30)


@pytest.mark.parametrize(
    ("name", "weight", "constant"),
    [
        ("flare::linear", torch.zeros(8, 8), (False, False, False)),
        ("flare::linear", torch.zeros(8, 8, dtype=torch.float64), (False, True, False)),
        ("flare::rms_norm", torch.zeros(8), (False, True, False)),
        ("flare::embedding", torch.zeros(8, 8), (False, True, False)),
        ("aten::linear", torch.zeros(8, 8), (False, True, False)),
    ],
)
def test_nothing_else_is_bound(name, weight, constant):
    cache = {}
    assert bind(name, (None, weight, None), constant, cache) is None
    assert cache == {}

"""`flare::gated_delta_rule`."""

import pytest
import torch
from precision import DTYPES
from ragged import MIXES, Ragged, agree, leaves_others_alone, results_of

from flare_components.ops import reference_sequence

EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
REAL = (2, 6, 128, 128)
SMALL = (2, 6, 16, 24)


def operands(lanes, dtype=torch.float32, geometry=SMALL):
    key_heads, heads, dk, dv = geometry
    qkv = lanes.packed(2 * key_heads * dk + heads * dv, dtype=dtype)
    b, a = lanes.packed(2 * heads, dtype=dtype).split([heads, heads], 1)
    a_log, dt_bias = lanes.normal(heads).abs().log().to(dtype), lanes.normal(heads, dtype=dtype)
    state = lanes.state(heads, dk, dv)
    return qkv, a, b, a_log, dt_bias, state, lanes.query_start, lanes.live_rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", [SMALL, (1, 1, 8, 8), (3, 3, 8, 16)])
@EACH
def test_agrees_with_the_reference(mix, geometry, dtype):
    """The state's tolerance is that of its own type: in BF16 only the output is rounded."""
    args = operands(Ragged(mix), dtype, geometry)
    out, state = results_of(torch.ops.flare.gated_delta_rule, args, (5,))
    want, want_state = results_of(reference_sequence.gated_delta_rule, args, (5,))
    tolerance = 2e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(out, want, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(state, want_state, atol=2e-5, rtol=2e-5, equal_nan=True)


def test_real_head_widths():
    args = operands(Ragged([(1, 3), (70, 5)]), geometry=REAL)
    agree("gated_delta_rule", reference_sequence.gated_delta_rule, args, written=(5,), tolerance=5e-5)


@EACH
def test_other_state_keeps_its_bytes(mix):
    lanes = Ragged(mix)
    leaves_others_alone("gated_delta_rule", lanes, operands(lanes), 5)


@pytest.mark.parametrize("count", [1, 2, 20, 64, 65, 130])
def test_a_lane_has_the_same_bits_beside_any_others(count):
    lanes = Ragged([(1, 2), (7, 0), (count, 3), (66, 1)])
    qkv, a, b, a_log, dt_bias, state, _, owners = operands(lanes)
    out, after = results_of(torch.ops.flare.gated_delta_rule, operands(Ragged(lanes.lanes)), (5,))
    mine, row = slice(8, 8 + count), owners[2]
    alone = torch.tensor([0, count], dtype=torch.int32), owners[2:3]
    args = qkv[mine].clone(), a[mine], b[mine], a_log, dt_bias, state, *alone
    own, own_after = results_of(torch.ops.flare.gated_delta_rule, args, (5,))
    assert torch.equal(own, out[mine])
    assert torch.equal(own_after[row], after[row])


def test_strong_decay_forgets_and_none_keeps():
    """a_log and a at their extremes: exp(g) is 0 or 1, and neither overflows inside a chunk."""
    lanes = Ragged([(80, 4)])
    qkv, a, b, a_log, dt_bias, state, *owners = operands(lanes)
    a_log, dt_bias = torch.full_like(a_log, 3.0), torch.full_like(dt_bias, 30.0)
    gone = results_of(torch.ops.flare.gated_delta_rule, (qkv, a, b, a_log, dt_bias, state, *owners), (5,))
    assert bool(gone[0][:80].isfinite().all())
    kept = (qkv, a, torch.full_like(b, -200.0), torch.full_like(a_log, -50.0), dt_bias, state, *owners)
    after = results_of(torch.ops.flare.gated_delta_rule, kept, (5,))[1]
    row = owners[1][0]
    torch.testing.assert_close(after[row], state[row], atol=1e-6, rtol=1e-6)

"""`flare::gated_delta_rule`, with a decay of heads and of channels."""

import pytest
import torch
from precision import DTYPES
from ragged import MIXES, Ragged, agree, leaves_others_alone, results_of

from flare_components.ops import reference_sequence

EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
REAL = (2, 6, 128, 128)
SMALL = (2, 6, 16, 24)
DECAYS = pytest.mark.parametrize("decay", ["heads", "channels", "bounded"])


def operands(lanes, dtype=torch.float32, geometry=SMALL, decay="heads"):
    """decay: of "heads", of "channels", or of channels and "bounded"."""
    key_heads, heads, dk, dv = geometry
    qkv = lanes.packed(2 * key_heads * dk + heads * dv, dtype=dtype)
    gates = heads if decay == "heads" else heads * dk
    b, a = lanes.packed(heads + gates, dtype=dtype).split([heads, gates], 1)
    a_log, dt_bias = lanes.normal(heads).abs().log().to(dtype), lanes.normal(gates, dtype=dtype)
    state = lanes.state(heads, dk, dv)
    bound = (-5.0,) if decay == "bounded" else ()
    return qkv, a, b, a_log, dt_bias, state, lanes.query_start, lanes.live_rows, *bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", [SMALL, (1, 1, 8, 8), (3, 3, 8, 16)])
@DECAYS
@EACH
def test_agrees_with_the_reference(mix, decay, geometry, dtype):
    """The state's tolerance is that of its own type: in BF16 only the output is rounded."""
    args = operands(Ragged(mix), dtype, geometry, decay)
    out, state = results_of(torch.ops.flare.gated_delta_rule, args, (5,))
    want, want_state = results_of(reference_sequence.gated_delta_rule, args, (5,))
    tolerance = 2e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(out, want, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(state, want_state, atol=2e-5, rtol=2e-5, equal_nan=True)


@DECAYS
def test_real_head_widths(decay):
    args = operands(Ragged([(1, 3), (70, 5)]), geometry=REAL, decay=decay)
    agree("gated_delta_rule", reference_sequence.gated_delta_rule, args, written=(5,), tolerance=5e-5)


@DECAYS
@EACH
def test_other_state_keeps_its_bytes(mix, decay):
    lanes = Ragged(mix)
    leaves_others_alone("gated_delta_rule", lanes, operands(lanes, decay=decay), 5)


@DECAYS
@pytest.mark.parametrize("count", [1, 2, 20, 64, 65, 130])
def test_a_lane_has_the_same_bits_beside_any_others(count, decay):
    lanes = Ragged([(1, 2), (7, 0), (count, 3), (66, 1)])
    qkv, a, b, a_log, dt_bias, state, _, owners, *bound = operands(lanes, decay=decay)
    every = operands(Ragged(lanes.lanes), decay=decay)
    out, after = results_of(torch.ops.flare.gated_delta_rule, every, (5,))
    mine, row = slice(8, 8 + count), owners[2]
    alone = torch.tensor([0, count], dtype=torch.int32), owners[2:3]
    args = qkv[mine].clone(), a[mine], b[mine], a_log, dt_bias, state, *alone, *bound
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


@pytest.mark.parametrize("geometry", [(2, 6, 16, 24), (3, 3, 8, 16)])
@pytest.mark.parametrize("count", [1, 40, 70])
def test_channels_that_decay_alike_are_a_head_that_decays(geometry, count):
    lanes = Ragged([(count, 4)])
    of_heads = operands(lanes, geometry=geometry)
    qkv, a, b, a_log, dt_bias, state, *owners = of_heads
    of_channels = (x.repeat_interleave(geometry[2], -1) for x in (a, dt_bias))
    wide, bias = of_channels
    every = (5,)
    want = results_of(torch.ops.flare.gated_delta_rule, of_heads, every)
    got = results_of(torch.ops.flare.gated_delta_rule, (qkv, wide, b, a_log, bias, state, *owners), every)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, atol=5e-6, rtol=1e-5, equal_nan=True)


EXTREMES = {
    "all at the bound": (200.0, 0.0),
    "none": (-200.0, 0.0),
    "each channel one or the other": (0.0, 400.0),
    "each row and channel anything": (0.0, 8.0),
}


@pytest.mark.parametrize("bound", [-5.0, None], ids=["bounded", "unbounded"])
@pytest.mark.parametrize("extreme", EXTREMES.values(), ids=EXTREMES)
def test_extreme_decays_of_channels(extreme, bound):
    """Sums of logarithms down to -320 in a chunk, or as softplus gives them, between channels that keep all:
    neither overflows, and what is left is as exact as with mild ones."""
    shift, spread = extreme
    lanes = Ragged([(150, 4), (1, 9)])
    args = operands(lanes, geometry=(2, 2, 128, 128), decay="channels")
    qkv, a, b, a_log, dt_bias, state, *owners = args
    if spread > 100:
        dt_bias = torch.where(dt_bias > 0, spread, -spread)
    else:
        a, dt_bias = a * spread, dt_bias * 0 + shift
    args = qkv, a, b, torch.zeros_like(a_log), dt_bias, state, *owners, bound
    out, after = results_of(torch.ops.flare.gated_delta_rule, args, (5,))
    want, want_after = results_of(reference_sequence.gated_delta_rule, args, (5,))
    live = lanes.live
    assert bool(out[:live].isfinite().all())
    torch.testing.assert_close(out, want, atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(after, want_after, atol=4e-6, rtol=4e-6, equal_nan=True)


@pytest.mark.parametrize("cuts", [[150], [64, 64, 22], [63, 87], [1, 149], [100, 49, 1]])
def test_cuts_of_channels_agree(cuts):
    lanes = Ragged([(150, 0)])
    qkv, a, b, a_log, dt_bias, state, starts, owners, bound = operands(lanes, decay="bounded")
    outputs, after = [], state
    for part in zip(*(x[:150].split(cuts) for x in (qkv, a, b)), strict=True):
        span = torch.tensor([0, len(part[0])], dtype=torch.int32), owners[:1]
        args = *part, a_log, dt_bias, after, *span, bound
        out, after = results_of(torch.ops.flare.gated_delta_rule, args, (5,))
        outputs.append(out)
    args = qkv, a, b, a_log, dt_bias, state, starts, owners, bound
    want, want_after = results_of(reference_sequence.gated_delta_rule, args, (5,))
    torch.testing.assert_close(torch.cat(outputs), want[:150], atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(after, want_after, atol=4e-6, rtol=1e-5, equal_nan=True)

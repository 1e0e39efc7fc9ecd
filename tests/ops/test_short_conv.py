"""`flare::short_conv`."""

import pytest
import torch
from precision import DTYPES
from ragged import MIXES, Ragged, agree, leaves_others_alone, results_of

from flare_components.ops import reference_sequence

EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)


def operands(lanes, dtype=torch.float32, channels=48, taps=4, dilation=1, weights=None):
    x = lanes.packed(channels + 16, dtype=dtype)[:, :channels]
    weight = lanes.normal(channels, 1, taps, dtype=weights or dtype)
    history = lanes.state(channels, (taps - 1) * dilation, dtype=dtype)
    return x, weight, history, lanes.query_start, lanes.live_rows, dilation


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dilation", [1, 3])
@EACH
def test_agrees_with_the_reference(mix, dilation, dtype):
    args = operands(Ragged(mix), dtype, dilation=dilation)
    tolerance = 2e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    agree("short_conv", reference_sequence.short_conv, args, written=(2,), tolerance=tolerance)


@EACH
def test_weights_of_fp32_round_once(mix):
    """Not before SiLU: the result is the BF16 number that is nearest to the reference's."""
    args = operands(Ragged(mix), torch.bfloat16, weights=torch.float32)
    tolerance = torch.finfo(torch.bfloat16).eps / 2 * 1.01
    agree("short_conv", reference_sequence.short_conv, args, written=(2,), tolerance=tolerance)
    rounded = torch.ops.flare.short_conv(args[0], args[1].bfloat16(), *args[2:])
    assert mix == MIXES["nobody"] or not torch.equal(rounded, torch.ops.flare.short_conv(*args))


@EACH
def test_other_state_keeps_its_bytes(mix):
    lanes = Ragged(mix)
    leaves_others_alone("short_conv", lanes, operands(lanes), 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [48, 67])
@pytest.mark.parametrize("weights", [None, torch.float32], ids=["one type", "FP32 weights"])
def test_a_cut_changes_no_bit(dtype, channels, weights):
    """Neither of outputs nor of history, down to one row a call."""
    lanes = Ragged([(40, 0)])
    x, weight, history, starts, owners, dilation = operands(
        lanes, dtype, channels, dilation=3, weights=weights
    )
    args = x[:40], weight, history, starts[:2], owners[:1], dilation
    want = results_of(torch.ops.flare.short_conv, args, (2,))
    for cut in (1, 2, 9, 13, 39, None):
        state, outputs = history, []
        for part in x[:40].split(1 if cut is None else [cut, 40 - cut]):
            start = torch.tensor([0, len(part)], dtype=torch.int32)
            out, state = results_of(
                torch.ops.flare.short_conv, (part, weight, state, start, owners[:1], dilation), (2,)
            )
            outputs.append(out)
        assert torch.equal(torch.cat(outputs), want[0]), cut
        assert torch.equal(state[owners[0]], want[1][owners[0]]), cut

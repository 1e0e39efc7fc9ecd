"""Routed experts with packed matrices: values, routing, what is never touched, memory."""

import pytest
import torch
from fake_call import faked
from live_memory import LiveMemory
from packed_matrices import BLOCK, FORMATS, compressed, packed_experts
from precision import same_bits

from flare.prepare.number_formats import NumberFormat, StoredNames, WeightFormat
from flare_components.modules import PackedExperts
from flare_components.ops import packed_product
from flare_components.ops.nvfp4 import nvfp4_experts
from flare_components.ops.nvfp4_csf import nvfp4_csf_experts
from flare_components.quant import csf

ALL = (*FORMATS, "nvfp4_csf")


@pytest.fixture(params=[packed_product.TILE_ELEMENTS, 16 * 64], ids=["one tile", "tiles"])
def tiles(request, monkeypatch):
    monkeypatch.setattr(packed_product, "TILE_ELEMENTS", request.param)


def routing(rows, number, count, seed=0):
    torch.manual_seed(seed)
    order = torch.rand(rows, number).argsort(1)[:, :count].int()
    order[torch.rand(rows, count) < 0.2] = -1
    return torch.rand(rows, count), order


def expected(experts, x, weights, chosen, quantize, limit=torch.inf):
    """Row by row in FP64, rounded to x's type where the operator rounds; and the magnitude summed."""
    out, size = torch.zeros(x.shape).double(), torch.zeros(x.shape).double()
    for row, lane in enumerate(chosen.tolist()):
        for place, expert in enumerate(lane):
            if expert < 0:
                continue
            wide = x[row : row + 1]
            wide = experts.rounded(wide, expert, False) if quantize else wide.double()
            gate, up = (wide @ experts.gate_up[expert].T).to(x.dtype).double().chunk(2, 1)
            gate, up = gate.minimum(torch.tensor(limit)), up.clip(-limit, limit)
            inner = (torch.nn.functional.silu(gate).to(x.dtype).double() * up).to(x.dtype)
            wide = experts.rounded(inner, expert, True) if quantize else inner.double()
            share = float(weights[row, place])
            out[row] += share * (wide @ experts.down[expert].T).to(x.dtype).double()[0]
            size[row] += share * (wide.abs() @ experts.down[expert].abs().T)[0]
    return out, size


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("case", ["float32", "bfloat16", "float32 quantized input", "float32 limited"])
def test_values(tiles, name, case):
    dtype, quantize = getattr(torch, case.split()[0]), "quantized" in case
    limit = {"limit": 0.5} if "limited" in case else {}
    experts = packed_experts(name, 5, 64, 32)
    weights, chosen = routing(9, 5, 3)
    x = torch.randn(9, 64).to(dtype)
    result = experts.run(x, weights, chosen, quantize=quantize, **limit)
    assert result.dtype == dtype
    want, size = expected(experts, x, weights, chosen, quantize, **limit)
    if limit:
        assert not torch.equal(result, experts.run(x, weights, chosen))
    units = 64 if dtype == torch.float32 else 4
    allowed = units * torch.finfo(dtype).eps * size.clamp_min(1e-6)
    error = (result.double() - want).abs()
    if quantize:
        # An inner value next to a tie is rounded one way or the other: such rows may be off by one step.
        assert bool((error <= allowed + size / 32).all())
        assert int((error <= allowed).all(1).sum()) >= 7
    else:
        assert bool((error <= allowed).all())
    assert bool(
        (want.abs().amax(1) > 10 * allowed.amax(1))[(chosen >= 0).any(1)].all()
    )  # the bound says something


@pytest.mark.parametrize("name", ALL)
def test_a_module_hands_its_limit_to_the_operator(name):
    experts = packed_experts(name, 3, 64, 32)
    operands = [operand for operand in experts.operands(True) if isinstance(operand, torch.Tensor)]
    number, compressed = NumberFormat(name.partition("_csf")[0].upper()), name.endswith("csf")
    found = WeightFormat(number, BLOCK, True, compressed, StoredNames("weight", "weight_scale"))
    exceptions = (len(operands[2]), len(operands[8])) if compressed else (0, 0)
    weights, chosen = routing(9, 3, 2)
    x = torch.randn(9, 64)
    for limit in (None, 0.5):
        module = PackedExperts(found, 3, 64, 32, exceptions, limit=limit)
        filled = dict(zip(module.state_dict(), operands, strict=True))
        module.load_state_dict(filled, assign=True)
        want = experts.run(x, weights, chosen, quantize=True, **({} if limit is None else {"limit": limit}))
        assert same_bits(module(x, weights, chosen), want)


@pytest.mark.parametrize("name", ALL)
def test_a_row_has_the_same_bits_beside_any_others(tiles, name):
    experts = packed_experts(name, 6, 64, 32)
    weights, chosen = routing(12, 6, 3)
    x = torch.randn(12, 64)
    whole = experts.run(x, weights, chosen, quantize=True)
    for rows in (slice(0, 1), slice(5, 7), slice(3, 12)):
        assert same_bits(experts.run(x[rows], weights[rows], chosen[rows], quantize=True), whole[rows])


@pytest.mark.parametrize("name", ALL)
def test_experts_that_no_row_chose_are_not_read(name):
    experts = packed_experts(name, 4, 64, 32)
    weights, x = torch.ones(2, 2), torch.randn(2, 64)
    chosen = torch.tensor([[1, -1], [3, 1]], dtype=torch.int32)
    clean = experts.run(x, weights, chosen)
    for operand in experts.operands(False):
        if isinstance(operand, torch.Tensor) and operand.is_floating_point() and operand.shape[0] == 4:
            operand.view(torch.uint8)[[0, 2]] = 255  # NaN in every type of scale
    operator = getattr(torch.ops.flare, f"{name}_experts")
    operands = experts.operands(False)
    assert same_bits(operator(x, weights, chosen, *operands), clean)
    assert not clean.isnan().any()


def test_a_row_without_experts_is_zero():
    experts = packed_experts("mxfp8", 2, 64, 32)
    none = torch.full((3, 2), -1, dtype=torch.int32)
    assert not experts.run(torch.randn(3, 64), torch.ones(3, 2), none).any()


def test_compressed_scales_change_no_bit(tiles):
    plain, packed = packed_experts("nvfp4", 5, 64, 32), packed_experts("nvfp4_csf", 5, 64, 32)
    arguments = list(plain.operands(True))
    random = torch.randint(0, 127, arguments[1].shape, dtype=torch.uint8)
    arguments[1] = torch.where(torch.rand(random.shape) < 0.1, random, arguments[1].view(torch.uint8)).view(
        torch.float8_e4m3fn
    )
    streams = compressed(arguments[1])
    assert streams[1].numel() > 20  # exceptions in several slabs
    weights, chosen = routing(9, 5, 3)
    x = torch.randn(9, 64)
    expected = torch.ops.flare.nvfp4_experts(x, weights, chosen, *arguments)
    inner = [*arguments[:1], *streams, *arguments[2:5], *compressed(arguments[5]), *arguments[6:]]
    assert same_bits(torch.ops.flare.nvfp4_csf_experts(x, weights, chosen, *inner), expected)
    assert len(inner) == len(packed.operands(True))


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_memory_is_bounded_by_a_tile_however_many_experts(compress):
    number, hidden, inner = 24, 1024, 512
    tile = 4 * packed_product.TILE_ELEMENTS
    assert 2 * inner * hidden * 4 >= 4 * tile  # one expert's gate and up have four tiles, all of them 96
    codes = [
        torch.randint(0, 256, shape, dtype=torch.uint8)
        for shape in ((number, 2 * inner, hidden // 2), (number, hidden, inner // 2))
    ]
    scales = [torch.full((number, c.shape[1], c.shape[2] // 8), 1.0).to(torch.float8_e4m3fn) for c in codes]
    if compress:
        streams = [compressed(one) for one in scales]
    else:
        streams = [(one,) for one in scales]
    scale = torch.ones(number, 2), torch.ones(number)
    weights, chosen = routing(8, number, 4)
    operator = nvfp4_csf_experts if compress else nvfp4_experts
    with LiveMemory() as memory:
        operator(
            torch.randn(8, hidden),
            weights,
            chosen,
            codes[0],
            *streams[0],
            scale[0],
            None,
            codes[1],
            *streams[1],
            scale[1],
            None,
        )
    assert tile < memory.peak < 6 * tile


@pytest.mark.parametrize("name", ALL)
def test_fake_results_have_the_layout_of_real_ones(name):
    experts = packed_experts(name, 3, 64, 32)
    args = (torch.randn(4, 64).bfloat16(), *routing(4, 3, 2), *experts.operands(True))
    real, fake = getattr(torch.ops.flare, f"{name}_experts")(*args), faked(f"{name}_experts", args)
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.parametrize("name", ALL)
def test_every_operand_is_checked(name):
    experts = packed_experts(name, 3, 64, 32)
    args = [torch.randn(4, 64).bfloat16(), *routing(4, 3, 2), *experts.operands(True)]
    for index, operand in enumerate(args):
        if isinstance(operand, torch.Tensor):
            with pytest.raises((RuntimeError, ValueError)):
                faked(f"{name}_experts", [*args[:index], operand.unsqueeze(-1), *args[index + 1 :]])


def test_compressed_scales_refuse_rows_that_are_no_slabs():
    codes = torch.zeros(2, 24, 16, dtype=torch.uint8), torch.zeros(2, 32, 6, dtype=torch.uint8)
    empty = torch.zeros(0, dtype=torch.int64).to(torch.uint32)
    streams = torch.zeros(2, 1, csf.SLAB * 2, dtype=torch.uint8), empty, torch.zeros(3, dtype=torch.int32)
    routed = torch.zeros(1, 32), torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int32)
    gate_up, down = (codes[0], *streams, torch.ones(2, 2), None), (codes[1], *streams, torch.ones(2), None)
    with pytest.raises(RuntimeError, match="rows in 16"):
        faked("nvfp4_csf_experts", (*routed, *gate_up, *down))

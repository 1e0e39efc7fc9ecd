"""What one comparison with the CPU kernel does not show: streams, company, tuning."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from op_cases import CASES, OpCase, attention, request_state  # noqa: E402
from op_device import assert_same, moved  # noqa: E402

from flare_components.ops import philox  # noqa: E402
from flare_components.ops.cuda import fused, linear, tuning  # noqa: E402
from flare_components.ops.cuda.philox import uniform  # noqa: E402
from flare_components.ops.sampling import READS  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@triton.jit
def uniforms(seeds, counters, out):
    place = tl.program_id(0)
    tl.store(out + place, uniform(tl.load(seeds + place), tl.load(counters + place)))


def test_uniforms_have_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(1)
    seeds, counters = (torch.randint(-(2**63), 2**63 - 1, (500,), generator=generator) for _ in range(2))
    counters[:20] = torch.arange(20)
    out = torch.empty(500, dtype=torch.float64, device="cuda")
    uniforms[(500,)](seeds.cuda(), counters.cuda(), out)
    assert out.tolist() == [
        philox.uniform(seed, counter) for seed, counter in zip(seeds.tolist(), counters.tolist(), strict=True)
    ]


@pytest.mark.parametrize("lanes", [1, 2, 7, 60, 200])
def test_a_draw_is_the_same_in_any_company(lanes: int) -> None:
    """Teams of 49, 49, 18, 2 and 1 programs."""
    generator = torch.Generator().manual_seed(5)
    vocab, requests = 50000, 6
    state = request_state(generator, requests, vocab)
    state["finished"].zero_()
    state["temperature"].clamp_min_(0.5)
    state = {name: tensor.cuda() for name, tensor in state.items()}
    logits = (torch.randn(requests, vocab, generator=generator) * 3).bfloat16().cuda()

    def drawn(slots: torch.Tensor) -> list[torch.Tensor]:
        rows = logits[slots.clamp_min(0)]
        return list(torch.ops.flare.sample(rows, slots, *(state[name] for name in READS[2:]), None))

    alone = [drawn(torch.tensor([request], dtype=torch.int32).cuda()) for request in range(requests)]
    # Reads of one slot by several lanes are fine: sampling writes no state.
    slots = torch.randint(-1, requests, (lanes,), generator=generator).int()
    together = drawn(slots.cuda())
    for lane, request in enumerate(slots.tolist()):
        if request >= 0:
            for one, many in zip(alone[request], together, strict=True):
                assert torch.equal(one[0], many[lane])


def test_a_row_of_attention_has_the_same_bits_in_any_company() -> None:
    given = attention(9, 9, torch.bfloat16, longest=900)(torch.Generator().manual_seed(3))
    full = torch.ops.flare.paged_attention(*moved(given, "cuda"))
    q, keys, values, table, starts, contexts, scale = given
    for lane in range(9):
        lonely = contexts.clone()
        lonely[:lane] = 0
        lonely[lane + 1 :] = 0
        operands = moved((q, keys, values, table, starts, lonely, scale), "cuda")
        row = slice(int(starts[lane]), int(starts[lane + 1]))
        assert torch.equal(torch.ops.flare.paged_attention(*operands)[row], full[row])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "outputs", "inputs"), [(1, 1000, 520), (1, 64, 4096), (5, 300, 1030), (8, 64, 4096)]
)
def test_every_candidate_agrees(dtype: torch.dtype, rows: int, outputs: int, inputs: int) -> None:
    generator = torch.Generator().manual_seed(2)
    x, weight, bias = (
        torch.randn(shape, generator=generator) for shape in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    given = [t.to(dtype) for t in (x, weight / inputs**0.5, bias)]
    expected = (given[0].double() @ given[1].double().T + given[2].double()).to(dtype)
    x, weight, bias = (t.cuda() for t in given)
    found = linear.candidates(x, weight)
    assert len(found) > 4
    for candidate in found:
        assert_same(candidate.call(x, weight, bias), expected, 2e-5 if dtype == torch.float32 else 2**-7)
        without = candidate.call(x, weight, None) + bias
        assert_same(without, expected, 2e-5 if dtype == torch.float32 else 4 * 2**-7)


def test_tuning_measures_once_and_keeps_its_choice() -> None:
    tuning.forget()
    x, weight = (torch.randn(shape, device="cuda").bfloat16() for shape in ((1, 1024), (2048, 1024)))
    with tuning.tuning() as report:
        for _ in range(2):
            torch.ops.flare.linear(x, weight, None)
    (choice,) = report.choices
    assert choice.operator == "linear"
    assert choice.microseconds[choice.name] <= choice.microseconds["cublas"]
    with tuning.tuning() as again:
        torch.ops.flare.linear(x, weight, None)
    assert again.choices == []
    tuning.forget()


FUSED = ("linear_add", "norm_linear", "norm_gate", "norm_attention")


@pytest.mark.parametrize("case", [case for case in CASES if case.op in FUSED], ids=lambda case: case.name)
def test_every_kernel_of_a_fused_operator_agrees(case: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each candidate alone, and twice in a captured graph where launches may overlap."""
    op = getattr(torch.ops.flare, case.op)
    for number in range(16):
        names: list[str] = []

        def choose(
            _: str, __: object, found: Any, ___: object, number: int = number, names: list[str] = names
        ) -> tuning.Candidate:
            names[:] = [candidate.name for candidate in found()]
            return found()[number % len(names)]

        monkeypatch.setattr(fused, "choose", choose)
        given = case.make(torch.Generator().manual_seed(number))
        on_gpu, again = moved(given, "cuda"), moved(given, "cuda")
        expected = op(*given)
        assert_same(op(*on_gpu), expected, case.tolerance)
        assert_same(on_gpu, given, case.tolerance)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = op(*again)
            torch.ops.flare.rms_norm(captured, captured.flatten()[: captured.shape[-1]].clone(), 1e-5)
        for _ in range(3):
            captured.fill_(77)
            graph.replay()
        assert_same(captured, expected, case.tolerance)
        if number + 1 >= len(names):
            break

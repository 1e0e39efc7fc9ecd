"""FlashInfer's XQA kernel as decode attention: against float64, replayed, fused, chosen by measurement."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("flashinfer")

from attention_reference import operands, reference  # noqa: E402
from op_cases import CASES  # noqa: E402
from op_device import assert_same, moved, poison, refill  # noqa: E402

import flare_components.ops  # noqa: E402, F401
from flare_components.ops.cuda import attention, attention_choice, attention_xqa, tuning  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

LANES = {
    "one": [(1, 700)],
    "one, idle": [(0, 0)],
    "borders of tiles": [(1, n) for n in (1, 16, 17, 255, 256, 257, 512, 2049)],
    "padding at the end": [(1, 5000), (1, 3), (1, 64), (0, 0), (0, 0)],
    "idle lanes between": [(0, 0), (1, 900), (0, 0), (1, 33), (0, 77)],
    "a lane of several rows": [(3, 40), (0, 0), (0, 0), (1, 300)],
    "many": [(1, 1 + 37 * n % 600) for n in range(150)],
}
# heads, key heads, width, tokens of a page: few kernels, because each is built by a compiler.
SHAPES = [(1, 1, 64, 16), (8, 4, 64, 64), (6, 2, 128, 16), (24, 8, 128, 64), (8, 1, 128, 16), (10, 2, 80, 16)]


def supported(given: tuple[Any, ...]) -> None:
    if not attention_xqa.takes(given[:6]):
        pytest.skip("the kernel is not for this GPU")


def agrees(result: torch.Tensor, given: tuple[Any, ...]) -> None:
    expected = reference(*given)
    torch.testing.assert_close(result.double(), expected, atol=0.02, rtol=0.02)
    assert (result.double() - expected).norm() <= 6e-3 * expected.norm()
    assert not result[expected.flatten(1).eq(0).all(1)].any()  # rows of no lane


@pytest.mark.parametrize(("heads", "kv_heads", "width", "page"), SHAPES)
def test_agrees_with_float64(heads: int, kv_heads: int, width: int, page: int) -> None:
    """Pages hold NaN past every context, freed memory holds NaN, table entries past a context are -1."""
    for number, (name, lanes) in enumerate(LANES.items()):
        generator = torch.Generator().manual_seed(number)
        padding = len(lanes) - sum(queries for queries, _ in lanes)
        shape = {"heads": heads, "kv_heads": kv_heads, "width": width, "page": page}
        given = moved(operands(generator, lanes, padding=padding, **shape), "cuda")
        supported(given)
        before = moved(given, "cuda")
        poison()
        agrees(attention_xqa.attend_xqa(*given, None), given)
        arrivals = torch.zeros(len(lanes) * kv_heads, dtype=torch.int32, device="cuda")
        for _ in range(2):
            poison()
            agrees(attention_xqa.attend_xqa(*given, arrivals), given)
            assert not arrivals.any(), name
        assert_same(given, before, None)


def test_agrees_in_fp16() -> None:
    shape = {"heads": 6, "kv_heads": 2, "width": 128, "page": 16, "dtype": torch.float16}
    given = moved(operands(torch.Generator().manual_seed(1), LANES["borders of tiles"], **shape), "cuda")
    supported(given)
    agrees(attention_xqa.attend_xqa(*given, None), given)


def test_stale_and_foreign_table_entries_are_not_followed() -> None:
    given = moved(
        operands(
            torch.Generator().manual_seed(1),
            [(1, 17), (0, 0)],
            padding=1,
            heads=6,
            kv_heads=2,
            width=128,
            page=16,
        ),
        "cuda",
    )
    supported(given)
    given[3][0, 2:] = 2**31 - 1
    given[3][1, :] = 2**31 - 1
    agrees(attention_xqa.attend_xqa(*given, None), given)


@pytest.mark.parametrize("lanes", [1, 4])
def test_replayed_with_other_lengths(lanes: int) -> None:
    """One graph, with a kernel before and one after whose launches may overlap with it."""
    shape = {"heads": 24, "kv_heads": 8, "width": 128, "page": 64}
    contexts = ([5000, 1, 300, 70], [1, 2000, 0, 256], [0, 0, 0, 0], [257, 1000, 4999, 3])

    def made(step: int) -> tuple[Any, ...]:
        some = [(min(n, 1), n) for n in contexts[step][:lanes]]
        found = list(
            operands(
                torch.Generator().manual_seed(step), some, padding=lanes - sum(q for q, _ in some), **shape
            )
        )
        buffer = torch.full((90 * lanes, 2, 2, 64, 8, 128), torch.nan, dtype=torch.bfloat16)
        buffer[: found[1].shape[0], 1, 0], buffer[: found[1].shape[0], 1, 1] = found[1], found[2]
        table = torch.full((lanes, 90), -1, dtype=torch.int32)
        columns = min(found[3].shape[1], 90)
        table[:, :columns] = found[3][:, :columns]
        q = found[0].contiguous()
        return q, buffer[:, 1, 0], buffer[:, 1, 1], table, *found[4:]

    static = moved(made(0), "cuda")
    supported(static)
    gain = torch.ones(128, dtype=torch.bfloat16, device="cuda")
    attention_xqa.attend_xqa(*static, None)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.ops.flare.rms_norm(static[0].flatten(1), gain.repeat(24), 1e-5)
        out = attention_xqa.attend_xqa(*static, None)
        torch.ops.flare.rms_norm(out.flatten(1), gain.repeat(24), 1e-5)
    for step in (1, 2, 3, 0):
        given = moved(made(step), "cuda")
        refill(static, given)
        for _ in range(3):
            out.fill_(torch.nan)
            graph.replay()
            agrees(out, given)


def test_the_bits_are_the_same_every_time_and_in_any_company() -> None:
    lanes = [(1, 3000), (1, 40), (1, 700)]
    given = moved(
        operands(torch.Generator().manual_seed(3), lanes, heads=24, kv_heads=8, width=128, page=64), "cuda"
    )
    supported(given)
    full = attention_xqa.attend_xqa(*given, None)
    for _ in range(20):
        assert torch.equal(attention_xqa.attend_xqa(*given, None), full)
    for lane in range(3):
        lonely = torch.zeros_like(given[5])
        lonely[lane] = given[5][lane]
        alone = attention_xqa.attend_xqa(*given[:5], lonely, given[6], None)
        assert torch.equal(alone[lane], full[lane])


@pytest.mark.parametrize("kernel", ["rows alone", "xqa"])
def test_fused_with_what_comes_before(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that the projection has set to zero are the kernel's semaphores."""
    (case,) = (case for case in CASES if case.name == "norm_attention wide bf16")
    given = case.make(torch.Generator().manual_seed(1))
    expected = torch.ops.flare.norm_attention(*given)
    found = {"rows alone": attention_choice._rows_alone, "xqa": attention_xqa.attend_xqa}

    def choose(*_: Any) -> tuning.Candidate:
        return tuning.Candidate(kernel, found[kernel])

    monkeypatch.setattr(attention_choice, "choose", choose)
    on_gpu = moved(case.make(torch.Generator().manual_seed(1)), "cuda")
    torch.ops.flare.norm_attention(*on_gpu)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.ops.flare.norm_attention(*on_gpu)
    for _ in range(3):
        out.fill_(torch.nan)
        graph.replay()
        assert_same(out, expected, case.tolerance)


def test_ours_leaves_its_counts_at_zero() -> None:
    shape = {"heads": 6, "kv_heads": 2, "width": 128, "page": 16}
    generator = torch.Generator().manual_seed(3)
    given = moved(operands(generator, LANES["padding at the end"], padding=2, **shape), "cuda")
    arrivals = torch.zeros(10, dtype=torch.int32, device="cuda")
    for _ in range(3):
        agrees(attention.attend_few(given[:6], given[6], arrivals), given)
        assert not arrivals.any()


def test_it_is_compared_and_the_choice_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(attention_choice.UNQUALIFIED, "1")
    given = moved(
        operands(
            torch.Generator().manual_seed(3), [(1, 3000), (1, 40)], heads=24, kv_heads=8, width=128, page=64
        ),
        "cuda",
    )
    supported(given)
    tuning.forget()
    with tuning.tuning() as report:
        agrees(torch.ops.flare.paged_attention(*given), given)
    assert report.notes == []
    (choice,) = report.choices
    assert choice.microseconds.keys() == {"rows alone", attention_xqa.name()}
    print(choice)
    agrees(torch.ops.flare.paged_attention(*given), given)
    tuning.forget()

"""Every CUDA operator against its CPU kernel: fresh inputs, poisoned memory, captured and replayed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from op_cases import CASES, OpCase  # noqa: E402
from op_device import as_list, assert_same, moved, poison, refill  # noqa: E402

import flare_components.ops  # noqa: E402, F401

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def operands(case: OpCase, seed: int) -> tuple[Any, ...]:
    return case.make(torch.Generator().manual_seed(seed))


def expected(case: OpCase, seed: int) -> tuple[list[Any], tuple[Any, ...]]:
    """Results on the CPU, and the operands after."""
    given = operands(case, seed)
    return as_list(getattr(torch.ops.flare, case.op)(*given)), given


@EACH
def test_agrees_with_the_cpu(case: OpCase) -> None:
    for seed in range(4):
        results, after = expected(case, seed)
        given = moved(operands(case, seed), "cuda")
        poison()
        assert_same(as_list(getattr(torch.ops.flare, case.op)(*given)), results, case.tolerance)
        assert_same(given, after, case.tolerance)


@EACH
def test_replays_with_other_inputs(case: OpCase) -> None:
    op = getattr(torch.ops.flare, case.op)
    given = moved(operands(case, 10), "cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        op(*given)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = as_list(op(*given))
    for seed in (11, 12, 11, 13):
        results, after = expected(case, seed)
        for result in captured:
            result.fill_(77)
        refill(given, operands(case, seed))
        graph.replay()
        torch.cuda.synchronize()
        assert_same(captured, results, case.tolerance)
        assert_same(given, after, case.tolerance)

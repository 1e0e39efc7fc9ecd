"""Sorting a graph into regions changes the order of calls, and nothing that they compute or write."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

import flare_components.ops  # noqa: F401  (registers flare::*)
from flare.prepare.inductor import region_module
from flare.prepare.regions import Region, replace_regions, sort_into_regions

ROWS, WIDTH = 4, 8
Values = list[Tensor]


def shift(a: Tensor, b: Tensor) -> Tensor:
    a[1:3].copy_(b[:2].clone())
    return a


# Each makes a new value of two that there are, which may be one, or a view of the other.
STEPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: a * 0.5 - b,
    lambda a, b: torch.cat([a[:2], b[2:]]),
    lambda a, b: a.t().reshape(ROWS, WIDTH),
    lambda a, b: a.view(WIDTH, ROWS).view(ROWS, WIDTH),
    lambda a, b: torch.ops.flare.rms_norm(a, b[0], 1e-5),
    lambda a, b: torch.ops.flare.silu_and_mul(torch.cat([a, b], 1)),
    lambda a, b: a.add_(b),
    lambda a, b: shift(a, b),
    lambda a, b: torch.where(a > 0, torch.arange(WIDTH, dtype=torch.float32), b),
    lambda a, b: torch.ones(ROWS, WIDTH).add_(a),
    lambda a, b: torch.ops.flare.rms_norm(a, torch.full((WIDTH,), 2.0), 1e-5),
    lambda a, b: torch.empty_like(a).copy_(b),
    lambda a, b: torch.stack(a.split(2)).sum(0).repeat(2, 1),
    lambda a, b: torch.ops.flare.add_rms_norm(a, b.clone(), b[1].clone(), 1e-5),
]


def program(choices: list[tuple[int, int, int]]) -> Callable[..., Tensor]:
    def run(*buffers: Tensor) -> Tensor:
        values = list(buffers)
        for step, first, second in choices:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(STEPS[step](a, b))
        return torch.stack([value.sum() for value in values])

    return run


def buffers() -> Values:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(ROWS, WIDTH, generator=generator) for _ in range(3)]


def traced(run: Callable[..., Tensor]) -> fx.GraphModule:
    module: fx.GraphModule = make_fx(run)(*buffers())
    return module


def calls(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op not in ("placeholder", "output")]


number = st.integers(0, 30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(STEPS) - 1), number, number), max_size=14))
def test_any_program_computes_and_writes_the_same(choices: list[tuple[int, int, int]]) -> None:
    module = traced(program(choices))
    want, got = buffers(), buffers()
    result = module(*want)
    replace_regions(module, region_module)
    module.graph.lint()
    assert torch.equal(module(*got), result)
    for a, b in zip(want, got, strict=True):
        assert torch.equal(a, b)


def test_shared_work_meets_before_the_first_layer() -> None:
    def run(x: Tensor, weight: Tensor, hidden: Tensor) -> None:
        for scale in (1.0, 2.0, 3.0):
            table = torch.cos(x * scale)
            hidden.copy_(torch.ops.flare.rms_norm(hidden, weight[0], 1e-5) * table)

    module = traced(run)
    regions = sort_into_regions(module.graph)
    assert [len(region.nodes) for region in regions] == [7, 1, 1]
    assert len(regions[0].outputs) == 3  # two tables, and the first layer's product


def test_constants_are_made_where_they_are_used() -> None:
    def run(x: Tensor, y: Tensor, z: Tensor) -> None:
        column = torch.arange(WIDTH, dtype=torch.float32)
        hidden = torch.ops.flare.rms_norm(x, column, 1e-5)
        for _ in range(2):
            hidden = torch.ops.flare.rms_norm(hidden * column, z[0], 1e-5)
        y.copy_(hidden)

    module = traced(run)
    regions = sort_into_regions(module.graph)
    assert [[str(node.target) for node in region.nodes] for region in regions] == [
        ["aten.arange.default"],  # an operator takes it first
        ["aten.arange.default", "aten.mul.Tensor"],
        ["aten.arange.default", "aten.mul.Tensor"],
    ]
    assert [len(region.outputs) for region in regions] == [1, 1, 1]


def test_what_is_read_before_a_write_is_read_before_it() -> None:
    def run(x: Tensor, y: Tensor, z: Tensor) -> None:
        before = x * 2
        x.zero_()
        after = x + 1
        y.copy_(before + after)

    module = traced(run)
    regions = sort_into_regions(module.graph)
    assert [[str(node.target) for node in region.nodes] for region in regions] == [
        ["aten.mul.Tensor"],
        ["aten.add.Tensor", "aten.add.Tensor"],
    ]
    assert calls(module.graph) == [
        "aten.mul.Tensor",
        "aten.zero_.default",
        "aten.add.Tensor",
        "aten.add.Tensor",
        "aten.copy_.default",
    ]


def test_views_are_no_results_of_a_region() -> None:
    def run(x: Tensor, y: Tensor, z: Tensor) -> None:
        made = x * 2
        half = made[:2]
        y[:2].copy_(half)
        half.add_(1)
        z.copy_(made)

    module = traced(run)
    outputs: list[str] = []

    def make(region: Region) -> fx.GraphModule:
        outputs.extend(str(node.target) for node in region.outputs)
        return region_module(region)

    assert replace_regions(module, make) == 1
    assert outputs == ["aten.mul.Tensor"]
    x, y, z = buffers()
    module(x, y, z)
    assert torch.equal(y[:2], 2 * x[:2])
    assert torch.equal(z[:2], 2 * x[:2] + 1)

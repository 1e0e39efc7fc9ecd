"""A program as one graph over its storage: one input for one memory, and every write under one name."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from traced import Module, define

from flare.contract import BufferView, DType
from flare.prepare import TraceError
from flare.prepare.forward import build_forward
from flare.prepare.writes import memory_of, overlapping, written_operands

HOST = torch.device("cpu")
SHAPES = {"x": (DType.F32, (3, 4)), "y": (DType.F32, (3, 4)), "z": (DType.F32, (3, 4))}


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_equal_views_are_one_input_and_results_are_dropped() -> None:
    def body(m: Module) -> tuple[torch.Tensor]:
        m.y.add_(m.x * m.z)
        return (torch.arange(3, dtype=torch.float32) * 2,)

    module = Module(SHAPES, body, ("twice",))
    views = {**module.views, "z": module.views["x"]}
    forward = build_forward(define(module, views), HOST)
    assert forward.views == (views["x"], views["y"])
    assert targets(forward.module.graph) == ["aten.mul.Tensor", "aten.add_.Tensor"]
    x, y = torch.randn(3, 4), torch.zeros(3, 4)
    assert forward.module(x, y) is None
    assert torch.equal(y, x * x)


def test_new_tensors_are_made_on_the_device_that_runs() -> None:
    def body(m: Module) -> None:
        m.y.copy_(m.x + torch.arange(4, dtype=torch.float32).to(m.x.device))

    module = Module(SHAPES, body)
    forward = build_forward(define(module, module.views), torch.device("cuda", 0))
    devices = [n.kwargs["device"] for n in forward.module.graph.nodes if "device" in n.kwargs]
    assert devices == [torch.device("cuda", 0)]


def test_rewrites_of_the_operator_library_run_last() -> None:
    seen: list[list[str]] = []

    def rewrite(graph: fx.Graph) -> int:
        seen.append(targets(graph))
        for node in graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.mul.Tensor
        return 1

    module = Module(SHAPES, lambda m: m.y.copy_(m.x + m.z))
    forward = build_forward(define(module, module.views), HOST, (rewrite,))
    assert seen == [["aten.add.Tensor", "aten.copy_.default"]]
    x, y, z = torch.randn(3, 4), torch.zeros(3, 4), torch.randn(3, 4)
    forward.module(x, z, y)
    assert torch.equal(y, x * z)


def test_bytes_under_two_names_are_refused_when_written() -> None:
    module = Module(SHAPES, lambda m: m.y.copy_(m.x))
    shared = BufferView(buffer="x", dtype=DType.F32, shape=(3, 4), strides=(4, 1), offset=0)
    views = {**module.views, "y": shared}
    with pytest.raises(
        TraceError, match=r"program p: two views of x share bytes \(0 to 48, 0 to 48\) and one is"
    ):
        build_forward(define(module, views), HOST)
    reading = Module(SHAPES, lambda m: m.z.copy_(m.x + m.y))
    assert len(build_forward(define(reading, {**reading.views, "y": shared}), HOST).views) == 3


def test_constants_and_arguments_are_refused() -> None:
    held = torch.ones(4)
    module = Module(SHAPES, lambda m: m.y.copy_(m.x + held))
    with pytest.raises(TraceError, match="program p cannot be traced"):
        build_forward(define(module, module.views), HOST)
    made = Module(SHAPES, lambda m: m.y.copy_(m.x + torch.tensor([1.0, 2.0, 3.0, 4.0], device="cpu")))
    with pytest.raises(TraceError, match="program p"):
        build_forward(define(made, made.views), HOST)
    with pytest.raises(TraceError, match="program p takes no arguments, its forward has"):
        build_forward(define(torch.nn.Linear(2, 2), {}), HOST)


def test_a_view_of_another_layout_is_refused() -> None:
    module = Module(SHAPES, lambda m: m.y.copy_(m.x))
    other = BufferView(buffer="x", dtype=DType.F32, shape=(4, 3))
    with pytest.raises(
        TraceError, match=r"program p: x is torch.float32 \(3, 4\), its view is torch.float32 \(4, 3\)"
    ):
        build_forward(define(module, {**module.views, "x": other}), HOST)


def view(offset: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> BufferView:
    return BufferView(buffer="pages", dtype=DType.BF16, shape=shape, strides=strides, offset=offset)


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        (view(0, (4, 8)), view(64, (4, 8)), False),  # one behind the other
        (view(0, (4, 8)), view(62, (4, 8)), True),
        (view(0, (4, 8), (16, 1)), view(16, (4, 8), (16, 1)), False),  # two layers of every page
        (view(0, (4, 9), (16, 1)), view(16, (4, 8), (16, 1)), True),
        (view(16, (4, 9), (16, 1)), view(0, (4, 8), (16, 1)), True),  # reaches into the next page
        (view(0, (4, 8), (16, 1)), view(16, (4, 8), (32, 1)), True),  # other distances: the spans decide
        (view(0, (4, 0), (16, 1)), view(0, (4, 8), (16, 1)), False),
    ],
)
def test_which_views_share_bytes(a: BufferView, b: BufferView, share: bool) -> None:
    graph = fx.Graph()
    first, second = graph.placeholder("a"), graph.placeholder("b")
    assert overlapping({first: a, second: b}, {first}) == ((first, second) if share else None)
    assert overlapping({first: a, second: b}, set()) is None


def test_writes_are_followed_through_views_to_their_memory() -> None:
    def body(m: Module) -> None:
        first, second = m.x.view(4, 3).split([1, 3], 0)
        second[1:].transpose(0, 1).add_(1).mul_(2)
        first.zero_()
        torch.ops.flare.add_rms_norm(m.y * 2, m.z, m.z[0], 1e-5)

    module = Module(SHAPES, body)
    graph = build_forward(define(module, module.views), HOST).module.graph
    memories = [memory_of(operand) for operand in written_operands(graph)]
    x = next(iter(graph.nodes))
    assert memories[:3] == [x, x, x]
    assert str(memories[3].target) == "aten.mul.Tensor"

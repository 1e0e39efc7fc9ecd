"""Tracing: a module becomes an operator list that computes the same, or is refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from traced import Module, define, names, run

from flare.contract import BufferView, DType, OperatorList
from flare.prepare import TraceError
from flare.prepare.trace import trace

SHAPES = {"x": (DType.F32, (3, 4)), "y": (DType.F32, (3, 4)), "i": (DType.I32, (3,))}


def copy(m: Module) -> None:
    m.y.copy_(m.x)


def traced(module: Module) -> OperatorList:
    return trace(define(module, module.views))


def test_in_place_writes_and_probes() -> None:
    def body(m: Module) -> tuple[Tensor]:
        doubled = m.x * 2
        m.y.copy_(doubled)
        m.i.add_(1)
        return (doubled + m.i[:, None],)

    listing = traced(Module(SHAPES, body, probes=("sum",)))
    x = torch.randn(3, 4)
    buffers, probes = run(listing, SHAPES, {"x": x, "i": torch.tensor([5, 6, 7])})
    assert torch.equal(buffers["y"], x * 2)
    assert buffers["i"].tolist() == [6, 7, 8]
    assert torch.equal(probes["sum"], x * 2 + buffers["i"][:, None])
    assert OperatorList.model_validate_json(listing.model_dump_json(exclude_defaults=True)) == listing


def test_several_results_lists_types_and_infinities() -> None:
    def body(m: Module) -> tuple[Tensor]:
        top, where = m.x.topk(2, dim=-1)
        first, second = m.x.split([1, 2], dim=0)
        joined = torch.cat([first, second]).masked_fill(m.i[:, None] > 0, float("-inf"))
        return (joined.to(torch.float64) + top.sum(-1, keepdim=True) + where.sum(-1, keepdim=True),)

    x, i = torch.randn(3, 4), torch.tensor([0, 1, 0])
    _, probes = run(traced(Module(SHAPES, body, probes=("out",))), SHAPES, {"x": x, "i": i})
    top, where = x.topk(2, dim=-1)
    want = x.masked_fill(i[:, None] > 0, float("-inf")).double()
    want = want + top.sum(-1, keepdim=True) + where.sum(-1, keepdim=True)
    assert torch.equal(probes["out"], want)


def test_what_nobody_reads_is_dropped_and_writes_stay() -> None:
    def body(m: Module) -> None:
        _ = m.x.exp().sum()
        m.y.zero_()

    assert names(traced(Module(SHAPES, body))) == ["aten::zero_"]


def test_shared_storage_is_one_view() -> None:
    module = Module(SHAPES, copy)
    views = {**module.views, "y": BufferView(buffer="x", dtype=DType.F32, shape=(3, 4))}
    listing = trace(define(module, views))
    assert [view.buffer for view in listing.views] == ["x"]


def test_arguments_are_refused() -> None:
    class Asking(nn.Module):
        def forward(self, x: Tensor | None = None) -> None:
            return None

    with pytest.raises(TraceError, match=r"program p takes no arguments.*'x'"):
        trace(define(Asking(), {}))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_constants_are_refused(device: str) -> None:
    table = torch.ones(4, device=device)

    def body(m: Module) -> None:
        m.y.copy_(m.x * table)

    with pytest.raises(TraceError, match="program p"):
        traced(Module(SHAPES, body))


def test_a_tensor_without_storage_is_refused() -> None:
    module = Module(SHAPES, copy)
    with pytest.raises(TraceError, match=r"program p, node .*: y has no storage in the contract"):
        trace(define(module, {"x": module.views["x"]}))


@pytest.mark.parametrize(
    "view",
    [
        BufferView(buffer="x", dtype=DType.BF16, shape=(3, 4)),
        BufferView(buffer="x", dtype=DType.F32, shape=(4, 3)),
        BufferView(buffer="x", dtype=DType.F32, shape=(3, 4), strides=(8, 1)),
    ],
)
def test_storage_of_another_layout_is_refused(view: BufferView) -> None:
    module = Module(SHAPES, copy)
    with pytest.raises(TraceError, match=r"x is .* its view is"):
        trace(define(module, {**module.views, "x": view}))


def test_outputs_must_be_named_probes() -> None:
    with pytest.raises(TraceError, match="1 outputs for the probes"):
        traced(Module(SHAPES, lambda m: (m.x + 1,)))
    with pytest.raises(TraceError, match="probe x is a buffer"):
        traced(Module(SHAPES, lambda m: (m.x,), probes=("x",)))

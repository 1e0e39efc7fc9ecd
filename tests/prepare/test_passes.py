"""Graph passes change what runs, never what it computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from traced import Module, define, names, run

from flare.contract import DType
from flare.prepare.trace import trace

ROWS, WIDTH = 5, 64
SHAPES = {
    "x": (DType.F32, (ROWS, WIDTH)),
    "w": (DType.F32, (WIDTH, WIDTH)),
    "v": (DType.F32, (WIDTH, WIDTH)),
    "g": (DType.F32, (WIDTH,)),
    "out": (DType.F32, (ROWS, WIDTH)),
}
FUSED = "flare::add_rms_norm"
Body = Callable[[Module], tuple[Tensor, ...]]


def norm(m: Module, x: Tensor) -> Tensor:
    return torch.ops.flare.rms_norm(x, m.g, 1e-5)


def linear(x: Tensor, w: Tensor) -> Tensor:
    return nn.functional.linear(x, w)


def values(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        name: (torch.randn(shape, generator=generator) * 0.3).to(dtype)
        for name, (_, shape) in SHAPES.items()
        if name != "out"
    }


class Eager(nn.Module):
    """The same body over real tensors."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        self.register_buffer("out", torch.zeros(ROWS, WIDTH, dtype=tensors["x"].dtype))


def check(body: Body, *, fused: int) -> None:
    """Trace, count fusions, and compare every probe bitwise with the body as written."""
    probes = tuple(f"p{index}" for index in range(len(body(Module(SHAPES, body)))))  # type: ignore[arg-type]
    module = Module(SHAPES, body, probes)
    listing = trace(define(module, module.views))
    assert names(listing).count(FUSED) == fused, names(listing)
    with torch.inference_mode():
        want = body(Eager(values()))  # type: ignore[arg-type]
    _, got = run(listing, SHAPES, values())
    for name, tensor in zip(probes, want, strict=True):
        torch.testing.assert_close(got[name], tensor, rtol=2e-6, atol=2e-6, msg=name)


def test_a_chain_of_layers_is_fused() -> None:
    def body(m: Module) -> tuple[Tensor, ...]:
        hidden = linear(m.x, m.w)
        for weight in (m.v, m.w, m.v):
            hidden = hidden + linear(norm(m, hidden), weight)
        return (norm(m, hidden),)

    check(body, fused=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_operator_equals_the_two(dtype: torch.dtype) -> None:
    tensors = values(dtype)
    residual, x, weight = tensors["x"].clone(), linear(tensors["x"], tensors["w"]), tensors["g"]
    total = residual + x
    normed = torch.ops.flare.add_rms_norm(residual, x, weight, 1e-5)
    assert torch.equal(residual, total)  # the sum takes the residual's place, rounded like a sum
    torch.testing.assert_close(
        normed,
        torch.ops.flare.rms_norm(total, weight, 1e-5),
        rtol=1e-2 if dtype is torch.bfloat16 else 1e-6,
        atol=0,
    )


def residual_used_later(m: Module) -> tuple[Tensor, ...]:
    residual = linear(m.x, m.w)
    total = residual + linear(m.x, m.v)
    return norm(m, total), total * 2, residual * 3


def residual_returned(m: Module) -> tuple[Tensor, ...]:
    residual = linear(m.x, m.w)
    return norm(m, residual + linear(m.x, m.v)), residual


def sum_returned(m: Module) -> tuple[Tensor, ...]:
    total = linear(m.x, m.w) + linear(m.x, m.v)
    return norm(m, total), total


def residual_is_a_buffer(m: Module) -> tuple[Tensor, ...]:
    return norm(m, m.x + linear(m.x, m.v)), m.x * 2


def residual_is_viewed(m: Module) -> tuple[Tensor, ...]:
    residual = linear(m.x, m.w)
    seen = residual.view(WIDTH, ROWS)
    total = residual + linear(m.x, m.v)
    return norm(m, total), total * 2, seen * 3


def sum_used_before_the_norm(m: Module) -> tuple[Tensor, ...]:
    total = linear(m.x, m.w) + linear(m.x, m.v)
    early = total * 2
    return norm(m, total), early


def broadcast_sum(m: Module) -> tuple[Tensor, ...]:
    return norm(m, linear(m.x, m.w) + m.g), linear(m.x, m.v)


def scaled_sum(m: Module) -> tuple[Tensor, ...]:
    return (norm(m, torch.add(linear(m.x, m.w), linear(m.x, m.v), alpha=2)),)


def write_between(m: Module) -> tuple[Tensor, ...]:
    m.out.copy_(m.x)
    total = linear(m.x, m.w) + m.out
    m.out.zero_()
    return norm(m, total), total * 2


@pytest.mark.parametrize(
    "body",
    [
        residual_used_later,
        residual_returned,
        sum_returned,
        residual_is_a_buffer,
        residual_is_viewed,
        sum_used_before_the_norm,
        broadcast_sum,
        scaled_sum,
        write_between,
    ],
)
def test_fusion_is_refused(body: Body) -> None:
    check(body, fused=0)


def test_two_sums_that_share_a_term() -> None:
    """The second sum's residual is written by the first fusion unless order is respected."""

    def body(m: Module) -> tuple[Tensor, ...]:
        a, b, c = linear(m.x, m.w), linear(m.x, m.v), linear(m.x, m.w + m.v)
        first = a + b
        second = b + c
        other = norm(m, second)
        return norm(m, first) + other, first * 2, second * 3

    check(body, fused=1)


def test_products_become_packable_with_and_without_bias() -> None:
    def body(m: Module) -> tuple[Tensor, ...]:
        plain = nn.functional.linear(m.x, m.w)
        return plain, nn.functional.linear(m.x, weight=m.w, bias=m.g)

    module = Module(SHAPES, body, ("plain", "biased"))
    listing = trace(define(module, module.views))
    assert names(listing) == ["flare::linear", "flare::linear"]
    _, got = run(listing, SHAPES, tensors := values())
    torch.testing.assert_close(got["biased"] - got["plain"], tensors["g"].expand(ROWS, -1), atol=1e-5, rtol=0)


def test_casts_that_do_nothing_vanish_and_copies_stay() -> None:
    def body(m: Module) -> tuple[Tensor, ...]:
        same = m.x.to(torch.float32).contiguous().detach() + 1
        copied = m.x.to(torch.float32, copy=True)
        copied.add_(1)
        dropped = nn.functional.dropout(same, p=0.5, training=False)
        return same, copied, dropped * 2

    module = Module(SHAPES, body, ("same", "copied", "dropped"))
    listing = trace(define(module, module.views))
    kept = names(listing)
    assert "aten::dropout" not in kept
    assert "aten::contiguous" not in kept
    buffers, got = run(listing, SHAPES, tensors := values())
    assert torch.equal(buffers["x"], tensors["x"])
    assert torch.equal(got["same"], tensors["x"] + 1)
    assert torch.equal(got["dropped"], (tensors["x"] + 1) * 2)

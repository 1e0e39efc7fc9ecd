"""Root mean square norms of groups of a row, with FP32 arithmetic to the end and one rounding.

`flare::group_rms_norm`, `flare::inject_group_rms_norm` (a residual of several streams takes a layer's output
first) and `flare::gated_rms_norm`. A stored weight w stands for the gain `offset + w`; checkpoints that
centre gains at one store them with offset 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.elementwise import sigmoid, silu
from flare_components.ops.norms import rms_norm
from flare_components.ops.schema import define

GATES = {"sigmoid": sigmoid, "silu": silu}
"""Gate functions by name."""


def group_rms_norm(x: Tensor, weight: Tensor, width: int, eps: float, offset: float) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * (offset + weight)`, the mean taken over each `width` neighbours.

    x [..., C], weight [C], width divides C -> [..., C], contiguous.
    """
    groups = x.unflatten(-1, (-1, width))
    length = torch.linalg.vector_norm(groups, 2, -1, True, dtype=torch.float32)
    scale = (length * length).mul_(1 / width).add_(eps).rsqrt_()
    gain = weight.float().add(offset).view(-1, width)
    return (groups * scale).mul_(gain).to(x.dtype).flatten(-2)


def inject_group_rms_norm(
    residual: Tensor, x: Tensor, injection: Tensor, weight: Tensor, eps: float, offset: float
) -> Tensor:
    """Every stream of the residual takes x in its own measure, then the norm of every stream.

    residual [N, S * H] is written: stream s of S gets `+ 2 * sigmoid(injection[:, s] / S) * x`. x [N, H],
    injection [N, S], strided in N; weight [S * H]. Returns `group_rms_norm` of the residual. The measure, the
    product and the sum are each rounded to the residual's type.
    """
    streams, width = injection.shape[1], x.shape[1]
    measure = sigmoid(injection / streams).mul_(2).to(residual.dtype)
    residual.add_((x.unsqueeze(1) * measure.unsqueeze(2)).flatten(1))
    return group_rms_norm(residual, weight, width, eps, offset)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, activation: str) -> Tensor:
    """`rms_norm(x, weight) * activation(gate)`, the gate in FP32. x and gate [..., D]; activation: a name in
    GATES; weight [D] in x's type, to which the norm is then rounded before the gate, or in FP32, with which
    nothing is rounded before the end."""
    normed = rms_norm(x.to(weight.dtype), weight, eps).float()
    return normed.mul_(GATES[activation](gate.float())).to(x.dtype)


def _fake_norm(x: Tensor, weight: Tensor, width: int, eps: float, offset: float) -> Tensor:
    torch._check(weight.shape == x.shape[-1:], lambda: "weight does not fit x")
    torch._check(width > 0 and x.shape[-1] % width == 0, lambda: "groups do not divide x")
    return x.new_empty(x.shape)


def _fake_inject(
    residual: Tensor, x: Tensor, injection: Tensor, weight: Tensor, eps: float, offset: float
) -> Tensor:
    rows, width = x.shape
    torch._check(injection.dim() == 2 and injection.shape[0] == rows, lambda: "injection is [N, S]")
    torch._check(residual.shape == (rows, injection.shape[1] * width), lambda: "residual is [N, S * H]")
    torch._check(
        residual.dtype == x.dtype == injection.dtype, lambda: "residual, x, injection differ in type"
    )
    return _fake_norm(residual, weight, width, eps, offset)


def _fake_gated(x: Tensor, gate: Tensor, weight: Tensor, eps: float, activation: str) -> Tensor:
    torch._check(x.shape == gate.shape and x.dtype == gate.dtype, lambda: "gate does not fit x")
    torch._check(weight.shape == x.shape[-1:], lambda: "weight does not fit x")
    torch._check(weight.dtype in (x.dtype, torch.float32), lambda: "weight is of x's type or FP32")
    torch._check(activation in GATES, lambda: f"no gate function {activation!r}; known: {sorted(GATES)}")
    return x.new_empty(x.shape)


define(
    "group_rms_norm(Tensor x, Tensor weight, int width, float eps, float offset) -> Tensor",
    cpu=group_rms_norm,
    fake=_fake_norm,
)
define(
    "inject_group_rms_norm(Tensor(a!) residual, Tensor x, Tensor injection, Tensor weight, float eps, "
    "float offset) -> Tensor",
    cpu=inject_group_rms_norm,
    fake=_fake_inject,
)
define(
    "gated_rms_norm(Tensor x, Tensor gate, Tensor weight, float eps, str activation) -> Tensor",
    cpu=gated_rms_norm,
    fake=_fake_gated,
)

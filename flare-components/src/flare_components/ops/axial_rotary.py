"""Rotary embedding with positions of several axes, of a part of every head.

`flare::rotary_tables` makes cosines and sines from positions on the axes; `flare::norm_rotary` normalises
heads and rotates their first elements. Source of the axes: Wang et al. (arXiv 2409.12191), here with
interleaved axes: frequency i belongs to axis i mod A while i / A is below that axis's share, else to axis 0.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from flare_components.ops.group_norms import group_rms_norm
from flare_components.ops.rotary import signs
from flare_components.ops.schema import define


@lru_cache(maxsize=4)
def frequency_axes(frequencies: int, shares: tuple[int, ...]) -> Tensor:
    """i64[F]: the axis of every frequency; shares [A]: frequencies of every axis, of which those of axis 0
    are whatever the others leave."""
    axes = torch.zeros(frequencies, dtype=torch.int64)
    for axis, share in enumerate(shares[1:], start=1):
        axes[axis : share * len(shares) : len(shares)] = axis
    return axes


def rotary_tables(
    positions: Tensor, frequencies: Tensor, shares: list[int], scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines [N, 2 F] in `dtype`, for `norm_rotary`.

    positions i32[A, N]; frequencies f32[F] in radians per position; shares [A] as in `frequency_axes`;
    scale multiplies both. Angles are FP32.
    """
    axes = frequency_axes(frequencies.shape[0], tuple(shares))
    angles = positions.index_select(0, axes).t() * frequencies
    angles = torch.cat((angles, angles), 1)
    return angles.cos().mul_(scale).to(dtype), angles.sin().mul_(scale).to(dtype)


def norm_rotary(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float, offset: float) -> Tensor:
    """`group_rms_norm` of every head, then half rotation of its first elements.

    x [N, H, D], strided in N and H; weight [D]; cos and sin [N, R] with R <= D even, of x's type. The first R
    elements (a, b) become `(a, b) * cos + (-b, a) * sin`; the rest is only normalised. -> [N, H, D].
    """
    normed = group_rms_norm(x, weight, x.shape[2], eps, offset)
    part = cos.shape[1]
    turning = normed[..., :part]
    turned = turning * cos.unsqueeze(1)
    turned.addcmul_(turning.roll(part // 2, -1), (sin * signs(part, sin.dtype)).unsqueeze(1))
    turning.copy_(turned)
    return normed


def _fake_tables(
    positions: Tensor, frequencies: Tensor, shares: list[int], scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    torch._check(positions.dim() == 2 and positions.shape[0] == len(shares), lambda: "positions are [A, N]")
    torch._check(frequencies.dtype == torch.float32, lambda: "frequencies are f32[F]")
    torch._check(sum(shares) == frequencies.shape[0], lambda: "shares do not add up to the frequencies")
    shape = positions.shape[1], 2 * frequencies.shape[0]
    return frequencies.new_empty(shape, dtype=dtype), frequencies.new_empty(shape, dtype=dtype)


def _fake_rotary(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float, offset: float) -> Tensor:
    torch._check(x.dim() == 3 and weight.shape == x.shape[2:], lambda: "x is [N, H, D], weight is [D]")
    torch._check(cos.shape == sin.shape and cos.shape[0] == x.shape[0], lambda: "cos and sin are [N, R]")
    torch._check(cos.shape[1] <= x.shape[2] and cos.shape[1] % 2 == 0, lambda: "R is even and at most D")
    torch._check(x.dtype == cos.dtype == sin.dtype, lambda: "x, cos and sin differ in type")
    return x.new_empty(x.shape)


define(
    "rotary_tables(Tensor positions, Tensor frequencies, int[] shares, float scale, ScalarType dtype) "
    "-> (Tensor, Tensor)",
    cpu=rotary_tables,
    fake=_fake_tables,
)
define(
    "norm_rotary(Tensor x, Tensor weight, Tensor cos, Tensor sin, float eps, float offset) -> Tensor",
    cpu=norm_rotary,
    fake=_fake_rotary,
)

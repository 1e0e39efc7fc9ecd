"""Slow, plain references of row-wise operators of hybrid models, in FP64. As `reference`, for tests only."""

from __future__ import annotations

import torch
from torch import Tensor


def group_rms_norm(x: Tensor, weight: Tensor, width: int, eps: float, offset: float) -> Tensor:
    """Group by group."""
    groups = x.double().split(width, -1)
    normed = [group / (group.pow(2).mean(-1, keepdim=True) + eps).sqrt() for group in groups]
    return (torch.cat(normed, -1) * (weight.double() + offset)).to(x.dtype)


def inject_group_rms_norm(
    residual: Tensor, x: Tensor, injection: Tensor, weight: Tensor, eps: float, offset: float
) -> Tensor:
    """Stream by stream, in place, with the roundings that the operator promises."""
    streams, width = injection.shape[1], x.shape[1]
    for stream in range(streams):
        measure = (2 * torch.sigmoid((injection[:, stream : stream + 1] / streams).double())).to(x.dtype)
        residual[:, stream * width : (stream + 1) * width] += x * measure
    return group_rms_norm(residual, weight, width, eps, offset)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, activation: str) -> Tensor:
    """The norm rounded before and after its weight, then the gate."""
    wide = x.double()
    normed = weight * (wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt()).to(weight.dtype)
    opened = torch.sigmoid(gate.double())
    return (normed.double() * (opened * gate.double() if activation == "silu" else opened)).to(x.dtype)


def scaled_silu(x: Tensor, scale: float) -> Tensor:
    """The product rounded, then SiLU."""
    product = (x * scale).double()
    return (product * torch.sigmoid(product)).to(x.dtype)


def gated_stream_mean(gate: Tensor, x: Tensor, streams: int) -> Tensor:
    """Gate and product rounded, then the mean."""
    products = torch.sigmoid(gate.double()).to(x.dtype) * x
    return torch.stack(products.double().chunk(streams, 1)).mean(0).to(x.dtype)


def gated_streams(key: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """Stream by stream."""
    width, parts = value.shape[1], []
    for k, q in zip(key.double().split(width, 1), query.double().split(width, 1), strict=True):
        met = (k * q).sum(1, keepdim=True) / width**0.5
        root = met.sign() * met.abs().clamp_min(1e-6).sqrt()
        parts.append(torch.sigmoid(root) * value.double())
    return torch.cat(parts, 1).to(value.dtype)


def collapse_streams(
    residual: Tensor,
    weight: Tensor,
    base: Tensor,
    scale: Tensor,
    eps: float,
    balance_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Row by row and stream by stream."""
    streams = int(len(base) ** 0.5)
    made = []
    for row in residual.double():
        unit = row / (row.pow(2).mean() + eps).sqrt()
        pre, post, comb = (weight.double() @ unit).split([streams, streams, streams**2])
        pre_base, post_base, comb_base = base.double().split([streams, streams, streams**2])
        shares = torch.sigmoid(pre * scale[0] + pre_base) + balance_eps
        mixture = torch.softmax((comb * scale[2] + comb_base).view(streams, streams), 1) + balance_eps
        for step in range(2 * iterations - 1):
            sums = mixture.sum(step % 2, keepdim=True)
            mixture = mixture / (sums + balance_eps)
        collapsed = sum(s * part for s, part in zip(shares, row.chunk(streams), strict=True))
        made.append((collapsed, 2 * torch.sigmoid(post * scale[1] + post_base), mixture))
    inputs, posts, combs = (torch.stack(part) for part in zip(*made, strict=True))
    return inputs.to(residual.dtype), posts.float(), combs.float()


def expand_streams(residual: Tensor, x: Tensor, post: Tensor, comb: Tensor) -> None:
    """Row by row, in place."""
    for row, mixture in enumerate(comb.double()):
        streams = residual[row].double().view(len(mixture), -1)
        taken = post[row].double().outer(x[row].double()) + mixture.T @ streams
        residual[row] = taken.flatten().to(residual.dtype)


def rotary_tables(
    positions: Tensor, frequencies: Tensor, shares: list[int], scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Frequency by frequency; angles are FP32 products."""
    axes = len(shares)
    chosen = [i % axes if i // axes < shares[i % axes] else 0 for i in range(len(frequencies))]
    angles = torch.stack(
        [positions[axis].float() * f for axis, f in zip(chosen, frequencies, strict=True)], 1
    )
    angles = angles.double().repeat(1, 2)
    return (angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype)


def norm_rotary(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float, offset: float) -> Tensor:
    """The norm rounded, then pairs of elements turned."""
    normed, half = group_rms_norm(x, weight, x.shape[2], eps, offset), cos.shape[1] // 2
    out = normed.clone()
    for i in range(half):
        a, b = normed[..., i].double(), normed[..., i + half].double()
        c, s = cos.double().unsqueeze(1), sin.double().unsqueeze(1)
        out[..., i] = (a * c[..., i] - b * s[..., i]).to(x.dtype)
        out[..., i + half] = (b * c[..., i + half] + a * s[..., i + half]).to(x.dtype)
    return out


def route_softmax(logits: Tensor, lanes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Row by row, over all experts and then renormalised."""
    weights = torch.zeros(logits.shape[0], count)
    experts = torch.full((logits.shape[0], count), -1, dtype=torch.int32)
    for row, values in enumerate(logits.double()):
        ranked = sorted((-value, expert) for expert, value in enumerate(values.tolist()))
        order = [expert for _, expert in ranked[:count]]
        shares = torch.softmax(values, 0)[order]
        weights[row] = (shares / shares.sum()).float()
        if lanes[row] >= 0:
            experts[row] = torch.tensor(order)
    return weights, experts


def route_sigmoid(
    logits: Tensor, bias: Tensor, lanes: Tensor, count: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Row by row: sorted by score with bias, then by number."""
    weights = torch.zeros(logits.shape[0], count)
    experts = torch.full((logits.shape[0], count), -1, dtype=torch.int32)
    for row, values in enumerate(torch.sigmoid(logits.double())):
        ranked = sorted(
            (-float(s + b), e) for e, (s, b) in enumerate(zip(values, bias.double(), strict=True))
        )
        order = [expert for _, expert in ranked[:count]]
        weights[row] = (scale * values[order] / (values[order].sum() + 1e-20)).float()
        if lanes[row] >= 0:
            experts[row] = torch.tensor(order)
    return weights, experts


def routed_experts(
    x: Tensor, weights: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor, limit: float = torch.inf
) -> Tensor:
    """Row by row and expert by expert, every intermediate rounded as the operator's products round it."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    for row in range(x.shape[0]):
        for share, expert in zip(weights[row].double(), experts[row].tolist(), strict=True):
            if expert < 0:
                continue
            gate, up = (gate_up[expert].double() @ x[row].double()).to(x.dtype).double().chunk(2)
            gate, up = gate.minimum(torch.tensor(limit)), up.clip(-limit, limit)
            inner = ((gate * torch.sigmoid(gate)).to(x.dtype).double() * up).to(x.dtype)
            out[row] += share * (down[expert].double() @ inner.double()).to(x.dtype).double()
    return out.to(x.dtype)

"""Operators that are sequences of others: what a decoder layer is made of when few rows run.

A sequence costs the device a launch for every operator, and at one row each of them takes longer to start
than to work. On CUDA these run as one or two kernels for few rows, and as the sequence for more; on the CPU
they are the sequence. Every intermediate is rounded as the separate operators round it.

Preparation introduces them (`flare_components.ops.cuda.fusion`); modules are written with the separate ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.schema import define

flare = torch.ops.flare


def linear_add(residual: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """residual [N, out] + linear(x [N, in], weight [out, in], bias) -> [N, out]."""
    total: Tensor = residual + flare.linear(x, weight, bias)
    return total


def norm_linear(x: Tensor, gain: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear(rms_norm(x [N, in], gain [in], eps), weight [out, in], bias) -> [N, out]."""
    product: Tensor = flare.linear(flare.rms_norm(x, gain, eps), weight, bias)
    return product


def norm_gate(x: Tensor, gain: Tensor, eps: float, weight: Tensor) -> Tensor:
    """silu_and_mul of norm_linear: weight [2F, in], gate first -> [N, F]."""
    gated: Tensor = flare.silu_and_mul(norm_linear(x, gain, eps, weight, None))
    return gated


def norm_attention(
    x: Tensor,
    gain: Tensor,
    eps: float,
    weight: Tensor,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    slot_mapping: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
) -> Tensor:
    """Norm, stacked projection, rotary embedding, write to the pages and attention: x [N, in] -> [N, H, D].

    weight [(H + 2 KVH) * D, in]: queries, keys, values, with KVH and D those of the pages; the other operands
    are those of `rotary`, `paged_kv_write` and `paged_attention`.
    """
    kv_heads, width = k_pages.shape[2:]
    heads = weight.shape[0] // width - 2 * kv_heads
    stacked = norm_linear(x, gain, eps, weight, bias).view(-1, heads + 2 * kv_heads, width)
    q, k, v = stacked.split([heads, kv_heads, kv_heads], 1)
    q, k = flare.rotary(q, k, cos, sin)
    flare.paged_kv_write(k, v, k_pages, v_pages, slot_mapping)
    attended: Tensor = flare.paged_attention(
        q, k_pages, v_pages, page_table, query_start, context_lens, scale
    )
    return attended


def _fake_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    torch._check(x.dim() == weight.dim() == 2 and x.shape[1] == weight.shape[1], lambda: "shapes differ")
    torch._check(x.dtype == weight.dtype, lambda: f"x is {x.dtype}, weight is {weight.dtype}")
    return x.new_empty(x.shape[0], weight.shape[0])


def _fake_linear_add(residual: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = _fake_product(x, weight, bias)
    torch._check(residual.shape == out.shape and residual.dtype == x.dtype, lambda: "residual does not fit")
    return out


def _fake_norm_linear(x: Tensor, gain: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
    torch._check(gain.shape == x.shape[-1:] and gain.dtype == x.dtype, lambda: "gain does not fit x")
    return _fake_product(x, weight, bias)


def _fake_norm_gate(x: Tensor, gain: Tensor, eps: float, weight: Tensor) -> Tensor:
    out = _fake_norm_linear(x, gain, eps, weight, None)
    torch._check(out.shape[1] % 2 == 0, lambda: "weight is [2F, in]")
    return x.new_empty(x.shape[0], out.shape[1] // 2)


def _fake_norm_attention(
    x: Tensor,
    gain: Tensor,
    eps: float,
    weight: Tensor,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    slot_mapping: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
) -> Tensor:
    rows, outputs = _fake_norm_linear(x, gain, eps, weight, bias).shape
    kv_heads, width = k_pages.shape[2:]
    heads = outputs // width - 2 * kv_heads
    torch._check(outputs % width == 0 and heads > 0 and heads % kv_heads == 0, lambda: "heads do not fit")
    torch._check(k_pages.shape == v_pages.shape and k_pages.dtype == x.dtype, lambda: "pages do not fit x")
    torch._check(cos.shape == (rows, width) and sin.shape == cos.shape, lambda: "cos and sin are [N, D]")
    torch._check(cos.dtype == sin.dtype == x.dtype, lambda: "x, cos and sin differ in type")
    torch._check(slot_mapping.shape == (rows,), lambda: "slot_mapping is [N]")
    torch._check(query_start.shape[0] == page_table.shape[0] + 1, lambda: "query_start is [L + 1]")
    torch._check(context_lens.shape[0] == page_table.shape[0], lambda: "context_lens is [L]")
    return x.new_empty(rows, heads, width)


define(
    "linear_add(Tensor residual, Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    cpu=linear_add,
    fake=_fake_linear_add,
)
define(
    "norm_linear(Tensor x, Tensor gain, float eps, Tensor weight, Tensor? bias) -> Tensor",
    cpu=norm_linear,
    fake=_fake_norm_linear,
)
define(
    "norm_gate(Tensor x, Tensor gain, float eps, Tensor weight) -> Tensor",
    cpu=norm_gate,
    fake=_fake_norm_gate,
)
define(
    "norm_attention(Tensor x, Tensor gain, float eps, Tensor weight, Tensor? bias, Tensor cos, Tensor sin, "
    "Tensor(a!) k_pages, Tensor(b!) v_pages, Tensor slot_mapping, Tensor page_table, Tensor query_start, "
    "Tensor context_lens, float scale) -> Tensor",
    cpu=norm_attention,
    fake=_fake_norm_attention,
)

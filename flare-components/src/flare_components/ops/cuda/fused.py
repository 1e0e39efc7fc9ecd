"""`flare::linear_add`, `flare::norm_linear`, `flare::norm_gate` and `flare::norm_attention`.

Few rows run as one kernel, two with attention; more rows, and operands that the kernels do not take, run as
the sequence of separate operators. Which is fastest is timed (`tuning`)."""

from __future__ import annotations

from torch import Tensor

from flare_components.ops import fused
from flare_components.ops.cuda.attention_choice import attend_lanes
from flare_components.ops.cuda.launch import power_of_two
from flare_components.ops.cuda.products import Form, Turn, candidates
from flare_components.ops.cuda.projection import ADD, GATE, HEADS, PLAIN
from flare_components.ops.cuda.tuning import Candidate, choose
from flare_components.ops.schema import accelerate

Optional = Tensor | None


def _product(
    name: str,
    form: Form,
    operands: tuple[Tensor, Optional, Tensor, Optional, Optional],
    separate: Candidate | None,
) -> Tensor | None:
    """x, gain, weight, residual and bias by the fastest kernel or by the separate operators; None when no
    kernel takes them."""
    x, gain, weight, residual, bias = operands
    optional = (gain, residual, bias)
    contiguous = all(t is None or t.is_contiguous() for t in optional)
    found = candidates(form, x, weight) if contiguous else []
    if not found:
        return None
    head = tuple(form.turn.k_pages.shape[2:]) if form.turn else ()
    shape = (*x.shape, weight.shape[0], x.dtype, x.stride(0), head, *(t is None for t in optional))
    offered = [*found, separate] if separate else found
    chosen = choose(name, shape, lambda: offered, operands).name
    # A choice is remembered from another call, whose surroundings it holds.
    out: Tensor = next(c for c in offered if c.name == chosen).call(*operands)
    return out


def linear_add(residual: Tensor, x: Tensor, weight: Tensor, bias: Optional) -> Tensor:
    """As the operator's CPU kernel."""
    separate = Candidate("separate", lambda x, _, w, r, b: fused.linear_add(r, x, w, b))
    out = _product("linear_add", Form(ADD, None), (x, None, weight, residual, bias), separate)
    return fused.linear_add(residual, x, weight, bias) if out is None else out


def norm_linear(x: Tensor, gain: Tensor, eps: float, weight: Tensor, bias: Optional) -> Tensor:
    """As the operator's CPU kernel."""
    separate = Candidate("separate", lambda x, g, w, _, b: fused.norm_linear(x, g, eps, w, b))
    out = _product("norm_linear", Form(PLAIN, eps), (x, gain, weight, None, bias), separate)
    return fused.norm_linear(x, gain, eps, weight, bias) if out is None else out


def norm_gate(x: Tensor, gain: Tensor, eps: float, weight: Tensor) -> Tensor:
    """As the operator's CPU kernel."""
    separate = Candidate("separate", lambda x, g, w, _, __: fused.norm_gate(x, g, eps, w))
    out = _product("norm_gate", Form(GATE, eps), (x, gain, weight, None, None), separate)
    return fused.norm_gate(x, gain, eps, weight) if out is None else out


def norm_attention(
    x: Tensor,
    gain: Tensor,
    eps: float,
    weight: Tensor,
    bias: Optional,
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
    """As the operator's CPU kernel; the inner three dimensions of the pages are contiguous."""
    assert all(pages[0].is_contiguous() for pages in (k_pages, v_pages)), "a page is contiguous"
    rows, kv_heads, width = x.shape[0], *k_pages.shape[2:]
    rest = (page_table, query_start, context_lens)
    if rows <= context_lens.shape[0] and page_table.stride(1) == 1:
        arrivals = slot_mapping.new_empty(power_of_two(rows * kv_heads), dtype=query_start.dtype)
        turn = Turn(cos.contiguous(), sin.contiguous(), k_pages, v_pages, slot_mapping, arrivals)
        q = _product("norm_attention", Form(HEADS, eps, turn), (x, gain, weight, None, bias), None)
        if q is not None:
            return attend_lanes((q.view(rows, -1, width), k_pages, v_pages, *rest), scale, arrivals)
    before = (x, gain, eps, weight, bias, cos, sin)
    return fused.norm_attention(*before, k_pages, v_pages, slot_mapping, *rest, scale)


accelerate("linear_add", linear_add)
accelerate("norm_linear", norm_linear)
accelerate("norm_gate", norm_gate)
accelerate("norm_attention", norm_attention)

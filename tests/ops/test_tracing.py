"""Operators trace with fake tensors, and their fakes describe what the kernels return."""

import subprocess
import sys

import pytest
import torch
from hybrid_operands import hybrid_operands
from torch._subclasses.fake_tensor import FakeTensorMode

import flare_components.ops  # noqa: F401

flare = torch.ops.flare


def operands():
    """One call of every layer operator."""
    x, w = torch.randn(3, 8).bfloat16(), torch.randn(6, 8).bfloat16()
    qkv = torch.randn(3, 6, 4)
    q, k, v = qkv.split((4, 1, 1), 1)
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    pages = torch.zeros(4, 2, 2, 1, 4)
    lengths = torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([1, 3], dtype=torch.int32)
    i64 = torch.tensor([0, 1, 1])
    return {
        "linear": (x, w, None),
        "linear with bias": (x, w, torch.zeros(6).bfloat16()),
        "rms_norm": (x, x[0], 1e-5),
        "add_rms_norm": (x.clone(), x, x[0], 1e-5),
        "rotary": (q, k, torch.randn(3, 4), torch.randn(3, 4)),
        "silu_and_mul": (x,),
        "silu_and_mul with a limit": (x, 2.0),
        "embedding": (i64.int(), w),
        "gather_rows": (qkv, i64),
        "slot_mapping": (table, i64, i64.int(), 2),
        "paged_kv_write": (k, v, pages[:, 0], pages[:, 1], i64),
        "paged_attention": (q, pages[:, 0], pages[:, 1], table, *lengths, 0.5),
        "linear_add": (torch.randn(3, 6).bfloat16(), x, w, None),
        "norm_linear": (x, x[0], 1e-5, w, None),
        "norm_gate": (x, x[0], 1e-5, w),
        "norm_attention": (
            torch.randn(3, 8),
            torch.ones(8),
            1e-5,
            torch.randn(24, 8),
            None,
            *(torch.randn(3, 4) for _ in "cs"),
            *(pages[:, 0], pages[:, 1], i64 * 0 - 1, table, *lengths, 0.5),
        ),
        **hybrid_operands(),
    }


@pytest.mark.parametrize("name", operands())
def test_fake_results_have_the_layout_of_real_ones(name):
    args = operands()[name]
    operator = getattr(flare, name.split()[0])
    real = operator(*args)
    with FakeTensorMode() as mode:
        fake = operator(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
    assert layouts(real) == layouts(fake)


def layouts(result):
    tensors = result if isinstance(result, tuple) else () if result is None else (result,)
    return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]


BAD = {
    "residual shape": ("linear_add", (torch.zeros(2, 5), torch.zeros(2, 3), torch.zeros(4, 3), None)),
    "gain": ("norm_linear", (torch.zeros(2, 3), torch.zeros(4), 1e-5, torch.zeros(4, 3), None)),
    "odd gate weight": ("norm_gate", (torch.zeros(2, 3), torch.zeros(3), 1e-5, torch.zeros(5, 3))),
    "linear widths": ("linear", (torch.zeros(2, 3), torch.zeros(4, 5), None)),
    "linear types": ("linear", (torch.zeros(2, 3), torch.zeros(4, 3).bfloat16(), None)),
    "norm weight": ("rms_norm", (torch.zeros(2, 3), torch.zeros(4), 1e-5)),
    "rotary types": (
        "rotary",
        (
            torch.zeros(1, 2, 4).bfloat16(),
            torch.zeros(1, 1, 4).bfloat16(),
            torch.zeros(1, 4),
            torch.zeros(1, 4),
        ),
    ),
    "limit of nothing": ("silu_and_mul", (torch.zeros(2, 4), 0.0)),
    "odd gate": ("silu_and_mul", (torch.zeros(2, 3),)),
    "page type": (
        "paged_kv_write",
        (*[torch.zeros(1, 1, 4)] * 2, *[torch.zeros(2, 2, 1, 4).bfloat16()] * 2, torch.tensor([0])),
    ),
    "head ratio": (
        "paged_attention",
        (
            torch.zeros(1, 3, 4),
            *[torch.zeros(2, 2, 2, 4)] * 2,
            *[torch.zeros(1, 2).int(), torch.zeros(2).int(), torch.zeros(1).int()],
            1.0,
        ),
    ),
}


for name, place, operand in (
    ("short_conv", 2, torch.zeros(9, 24, 3)),
    ("short_conv", 1, torch.zeros(24, 1, 4).bfloat16()),
    ("gated_delta_rule", 5, torch.zeros(9, 4, 8, 8).bfloat16()),
    ("gated_delta_rule", 0, torch.zeros(12, 50).bfloat16()),
    ("gated_delta_rule", 1, torch.zeros(12, 12).bfloat16()),
    ("gated_delta_rule of channels", 4, torch.zeros(4)),
    ("gated_delta_rule of channels", 8, 1.0),
    ("short_conv in FP32", 2, torch.zeros(9, 24, 3)),
    ("collapse_streams", 1, torch.zeros(24, 31)),
    ("collapse_streams", 2, torch.zeros(23)),
    ("collapse_streams", 3, torch.zeros(1)),
    ("collapse_streams", 6, 0),
    ("expand_streams", 2, torch.zeros(12, 3)),
    ("expand_streams", 3, torch.zeros(12, 4, 4).bfloat16()),
    ("expand_streams", 1, torch.zeros(12, 8).bfloat16()),
    ("expand_collapse_streams", 5, torch.zeros(15)),
    ("stream_mean", 1, 5),
    ("gated_rms_norm in FP32", 2, torch.zeros(32).double()),
    ("ngram_rows", 5, torch.ones(2, 2, dtype=torch.int64)),
    ("ngram_rows", 6, torch.ones(2, 4, dtype=torch.int32)),
    ("group_rms_norm", 2, 5),
    ("inject_group_rms_norm", 2, torch.zeros(12, 3)),
    ("gated_rms_norm", 4, "relu"),
    ("gated_stream_mean", 2, 5),
    ("gated_streams", 2, torch.zeros(12, 7)),
    ("rotary_tables", 2, [2, 1, 2]),
    ("norm_rotary", 2, torch.zeros(12, 18)),
    ("group_starts", 1, torch.zeros(9, 2, dtype=torch.int64)),
    ("pool_groups", 4, torch.zeros(9, 4, 12)),
    ("pool_groups", 10, 5),
    ("pool_gated_groups", 1, torch.zeros(12, 17)),
    ("pool_gated_groups", 2, torch.zeros(5, 16)),
    ("pool_gated_groups", 3, torch.zeros(9, 4, 16)),
    ("pool_gated_groups", 4, torch.zeros(3, 2, 16).bfloat16()),
    ("select_groups", 0, torch.zeros(12, 3, 8)),
    ("select_groups with weights", 7, torch.zeros(12, 4)),
    ("paged_write", 0, torch.zeros(12, 15)),
    ("paged_write", 2, torch.zeros(11, dtype=torch.int64)),
    ("latent_attention", 0, torch.zeros(12, 4, 8).bfloat16()),
    ("latent_attention", 1, torch.zeros(4, 9, 16)),
    ("latent_attention", 2, torch.zeros(3, 6, 16)),
    ("latent_attention", 2, torch.zeros(4, 6, 16).bfloat16()),
    ("latent_attention", 3, torch.zeros(3, 8, 15)),
    ("latent_attention", 8, 3),
    ("selected_attention", 3, torch.zeros(11, 1, dtype=torch.int32)),
    ("selected_attention", 7, 3),
    ("route_softmax", 2, 7),
    ("route_sigmoid", 1, torch.zeros(7)),
    ("route_sigmoid", 1, torch.zeros(6).bfloat16()),
    ("routed_experts", 4, torch.zeros(6, 8, 6)),
):
    args = list(hybrid_operands()[name])
    args[place] = operand
    BAD[f"{name} {place} {operand if isinstance(operand, int | float | str | list) else operand.dtype}"] = (
        name,
        args,
    )


@pytest.mark.parametrize("case", BAD)
def test_operands_that_do_not_fit_fail_the_trace(case):
    name, args = BAD[case]
    with FakeTensorMode() as mode, pytest.raises(RuntimeError):
        getattr(flare, name.split()[0])(
            *(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args)
        )


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, shape in {"residual": (2, 8), "x": (2, 8), "weight": (8,), "out": (2, 8)}.items():
            self.register_buffer(name, torch.zeros(shape))

    def forward(self):
        self.out.copy_(flare.add_rms_norm(self.residual, self.x, self.weight, 1e-5))


def test_in_place_writes_survive_export():
    graph = torch.export.export(Layer(), (), strict=False).graph
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    assert targets == [flare.add_rms_norm.default, torch.ops.aten.copy_.default]


def test_importing_the_operators_is_light():
    script = """
import sys, torch
before = set(sys.modules)
import flare_components.ops
heavy = ("transformers", "scipy", "torch.export", "torch._dynamo", "torch._inductor",
         "flare.prepare", "flare_components.serving", "flare_components.ops.reference")
print(sorted(name for name in set(sys.modules) - before if name.startswith(heavy)))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

"""Fusion for CUDA replaces exactly the sequences whose intermediates nobody else sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from precision import same_bits
from prepared_cores import tiny_request
from torch import Tensor, fx, nn

pytest.importorskip("triton")

import flare_components.ops  # noqa: F401
from flare.contract import DType
from flare.prepare import BufferLayout
from flare.prepare.passes import simplify
from flare.prepare.plan import plan_serving
from flare.prepare.weights import place_weights, weight_bytes
from flare_components.ops.cuda.fusion import fuse
from flare_components.ops.cuda.linear import MOST_ROWS
from flare_recipe_smollm.recipe import RECIPE

flare = torch.ops.flare
WIDTH, HEADS, KV_HEADS, HEAD, PAGE = 32, 4, 2, 8, 4


class Layer(nn.Module):
    """One decoder layer over registered state; `body` may be replaced."""

    def __init__(self, rows: int, body: Callable[[Layer], tuple[Tensor, ...]]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(rows)
        stacked = (HEADS + 2 * KV_HEADS) * HEAD
        shapes = {
            "x": (rows, WIDTH),
            "gain": (WIDTH,),
            "qkv": (stacked, WIDTH),
            "o": (WIDTH, HEADS * HEAD),
            "gate_up": (4 * WIDTH, WIDTH),
            "down": (WIDTH, 2 * WIDTH),
            "cos": (rows, HEAD),
            "sin": (rows, HEAD),
            "pages": (rows + 1, 2, PAGE, KV_HEADS, HEAD),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.randn(shape, generator=generator) * 0.3)
        self.register_buffer("table", torch.arange(rows, dtype=torch.int32).view(rows, 1) + 1)
        self.register_buffer("starts", torch.arange(rows + 1, dtype=torch.int32))
        self.register_buffer("contexts", torch.full((rows,), 2, dtype=torch.int32))
        self.register_buffer("slots", torch.arange(rows) * PAGE + PAGE + 1)
        self.body = body

    def forward(self) -> tuple[Tensor, ...]:
        return self.body(self)


def norm(m: Layer, x: Tensor) -> Tensor:
    return flare.rms_norm(x, m.gain, 1e-5)


def attended(m: Layer, x: Tensor, kept: list[Tensor] | None = None) -> Tensor:
    stacked = nn.functional.linear(norm(m, x), m.qkv).view(-1, HEADS + 2 * KV_HEADS, HEAD)
    q, k, v = stacked.split([HEADS, KV_HEADS, KV_HEADS], 1)
    q, k = flare.rotary(q, k, m.cos, m.sin)
    keys, values = m.pages[:, 0], m.pages[:, 1]
    flare.paged_kv_write(k, v, keys, values, m.slots)
    if kept is not None:
        kept.append(k.clone())
    out = flare.paged_attention(q, keys, values, m.table, m.starts, m.contexts, HEAD**-0.5)
    return out.view(-1, HEADS * HEAD)


def fed(m: Layer, x: Tensor) -> Tensor:
    return nn.functional.linear(flare.silu_and_mul(nn.functional.linear(norm(m, x), m.gate_up)), m.down)


def decoder_layer(m: Layer) -> tuple[Tensor, ...]:
    x = m.x + 0
    x = x + nn.functional.linear(attended(m, x), m.o)
    x = x + fed(m, x)
    return norm(m, x), x * 2


def traced(module: Layer) -> fx.GraphModule:
    with torch.no_grad():
        exported = torch.export.export(module, (), strict=False)
    simplify(exported.graph_module.graph)
    exported.graph_module.recompile()
    names = exported.graph_signature.inputs_to_buffers
    exported.graph_module.meta["inputs"] = [
        names[n.name] for n in exported.graph.nodes if n.op == "placeholder"
    ]
    return exported.graph_module


def run(graph: fx.GraphModule, module: Layer) -> list[Tensor]:
    """The graph's results, and the pages after it."""
    state = {name: tensor.clone() for name, tensor in module.named_buffers()}
    results = graph(*(state[name] for name in graph.meta["inputs"]))
    return [*results, state["pages"]]


def check(body: Callable[[Layer], tuple[Tensor, ...]], rows: int = 3) -> list[str]:
    """Fuse; results keep every bit. Returns the names of the fused operators."""
    module = Layer(rows, body)
    graph = traced(module)
    before = run(graph, module)
    count = fuse(graph.graph)
    graph.recompile()
    after = run(graph, module)
    assert all(same_bits(a, b) for a, b in zip(before, after, strict=True))
    fused = {"linear_add", "norm_linear", "norm_gate", "norm_attention"}
    names = [str(node.target).split(".")[1] for node in graph.graph.nodes if "flare." in str(node.target)]
    found = [name for name in names if name in fused]
    assert len(found) == count
    return found


def test_a_decoder_layer_is_four_operators() -> None:
    assert check(decoder_layer) == ["norm_attention", "linear_add", "norm_gate", "linear_add"]
    assert check(decoder_layer, rows=MOST_ROWS + 1) == []


def key_seen(m: Layer) -> tuple[Tensor, ...]:
    kept: list[Tensor] = []
    return attended(m, m.x, kept), *kept


def norm_seen(m: Layer) -> tuple[Tensor, ...]:
    y = norm(m, m.x)
    return nn.functional.linear(y, m.qkv), y * 2


def product_seen(m: Layer) -> tuple[Tensor, ...]:
    y = nn.functional.linear(m.x, m.o)
    return m.x + y, y * 2


def gate_up_seen(m: Layer) -> tuple[Tensor, ...]:
    y = nn.functional.linear(norm(m, m.x), m.gate_up)
    return flare.silu_and_mul(y), y * 2


def limited_gate(m: Layer) -> tuple[Tensor, ...]:
    return (flare.silu_and_mul(nn.functional.linear(norm(m, m.x), m.gate_up), 0.5),)


def pages_change_before_attention(m: Layer) -> tuple[Tensor, ...]:
    stacked = nn.functional.linear(norm(m, m.x), m.qkv).view(-1, HEADS + 2 * KV_HEADS, HEAD)
    q, k, v = stacked.split([HEADS, KV_HEADS, KV_HEADS], 1)
    q, k = flare.rotary(q, k, m.cos, m.sin)
    flare.paged_kv_write(k, v, m.pages[:, 0], m.pages[:, 1], m.slots)
    flare.paged_kv_write(v.clone(), k.clone(), m.pages[:, 0], m.pages[:, 1], m.slots + 1)
    return (flare.paged_attention(q, m.pages[:, 0], m.pages[:, 1], m.table, m.starts, m.contexts + 1, 1.0),)


def input_changes_before_the_product(m: Layer) -> tuple[Tensor, ...]:
    x = m.x + 0
    y = norm(m, x)
    flare.scatter_rows(x, m.starts[:-1], y * 3)
    return nn.functional.linear(y, m.qkv), x * 2


def other_keys(m: Layer) -> tuple[Tensor, ...]:
    stacked = nn.functional.linear(norm(m, m.x), m.qkv).view(-1, HEADS + 2 * KV_HEADS, HEAD)
    q, v, k = stacked.split([HEADS, KV_HEADS, KV_HEADS], 1)
    q, k = flare.rotary(q, k, m.cos, m.sin)
    flare.paged_kv_write(k, v, m.pages[:, 0], m.pages[:, 1], m.slots)
    return (flare.paged_attention(q, m.pages[:, 0], m.pages[:, 1], m.table, m.starts, m.contexts, 1.0),)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (key_seen, ["norm_linear"]),
        (norm_seen, []),
        (product_seen, []),
        (gate_up_seen, ["norm_linear"]),
        (limited_gate, ["norm_linear"]),
        (pages_change_before_attention, ["norm_linear"]),
        (input_changes_before_the_product, []),
        (other_keys, ["norm_linear"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_somebody_else_sees_stays(
    body: Callable[[Layer], tuple[Tensor, ...]], expected: list[str]
) -> None:
    assert check(body) == expected


def test_every_layer_of_a_recipe_is_four_operators(tiny_checkpoint: Path) -> None:
    config = RECIPE.loader.config(RECIPE.loader.open(tiny_checkpoint))
    built = RECIPE.replacements.build(config, DType.BF16)
    plan = plan_serving(
        tiny_request().capacities,
        schemes=RECIPE.cache_schemes.schemes(config, DType.BF16),
        dtype=DType.BF16,
        vocab_size=config.vocab_size,
        model_context=built.context,
        weight_bytes=weight_bytes(built),
        weight_copies=1.0,
        prefill_chunk=512,
    )
    layout = BufferLayout()
    composed = RECIPE.programs.compose(plan, built.module, layout, place_weights(built, layout))
    counts = {}
    for program in composed.programs:
        if program.name.startswith(("decode", "prefill")):
            with torch.no_grad(), torch.device("meta"):
                graph = torch.export.export(program.module, (), strict=False).graph
            simplify(graph)
            counts[program.name] = fuse(graph)
    layers = config.num_hidden_layers
    assert counts == {name: 4 * layers if name.startswith("decode") else 0 for name in counts}
    assert "decode.4" in counts

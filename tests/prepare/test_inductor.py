"""Compiled programs write where programs write, in their order, and round where operators round."""

from __future__ import annotations

import re
import shutil

import pytest
import torch
from compiled import HOST, Memory, run
from torch import Tensor
from traced import Module, define

import flare_components.ops  # noqa: F401  (registers flare::*)
from flare.contract import BufferView, DType
from flare.prepare import TraceError
from flare.prepare.forward import build_forward
from flare.prepare.inductor import CompiledRegion, ForwardCompiler

ROWS, WIDTH, PAGES = 5, 64, 33
SHAPES = {
    "x": (DType.BF16, (ROWS, WIDTH)),
    "w": (DType.BF16, (WIDTH, WIDTH)),
    "g": (DType.BF16, (WIDTH,)),
    "count": (DType.I32, (ROWS,)),
    "kept": (DType.I32, (ROWS,)),
    "out": (DType.BF16, (ROWS, WIDTH)),
    "rows": (DType.BF16, (ROWS, WIDTH)),
    "keys": (DType.BF16, (PAGES, 16, 2, 8)),
    "values": (DType.BF16, (PAGES, 16, 2, 8)),
    "slots": (DType.I64, (ROWS,)),
}


def program(m: Module) -> None:
    """Reads before, between and after writes of one memory; values that several operators read."""
    before = torch.ops.flare.gather_rows(m.count, torch.arange(ROWS, dtype=torch.int32))
    hidden = m.x * 2 + 1
    scale = torch.cos(m.x.float()).to(torch.bfloat16)
    for _ in range(2):
        normed = torch.ops.flare.rms_norm(hidden, m.g, 1e-5)
        heads = torch.nn.functional.linear(normed, m.w).view(ROWS, 8, 8)
        key, value = heads[:, :2], heads[:, 2:4]
        torch.ops.flare.paged_kv_write(key, value, m.keys, m.values, m.slots)
        hidden = hidden + torch.ops.flare.rms_norm(scale, m.g, 1e-5)
    m.count.add_(3)
    m.kept.copy_(before + 10 * m.count)
    m.count[1:3].mul_(2)
    m.rows[:2].copy_(hidden[3:])
    # The sum of two products would round once where operators round three times.
    m.out.copy_((hidden * scale) * scale - hidden)


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


def memory() -> Memory:
    generator = torch.Generator().manual_seed(1)
    tensors: dict[str, Tensor] = {}
    for name, (dtype, shape) in SHAPES.items():
        if dtype is DType.BF16:
            tensors[name] = torch.randn(shape, generator=generator).bfloat16()
        elif dtype is DType.I32:
            tensors[name] = torch.arange(ROWS, dtype=torch.int32)
    return Memory({**tensors, "slots": torch.tensor([3, -1, 40, 500, 9])})


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles for the CPU with g++")
def test_every_write_lands_in_the_callers_memory() -> None:
    module = Module(SHAPES, program)
    forward = build_forward(define(module, module.views), HOST)
    compiler = ForwardCompiler(HOST, library="test")
    compiled = compiler.trace(define(module, module.views))
    compiler.compile(compiled)
    want, got, before = memory(), memory(), memory()
    run(forward, want)
    run(compiled, got)
    written = {name for name, data in want.bytes.items() if not torch.equal(data, before.bytes[name])}
    assert written == {"count", "kept", "rows", "out", "keys", "values"}
    for name, expected in want.bytes.items():
        assert torch.equal(got.bytes[name], expected), name
    calls = [str(node.target) for node in compiled.module.graph.nodes if node.op == "call_function"]
    assert calls.count("flare.paged_kv_write.default") == 2
    assert not {"aten.clone.default", "aten.cos.default", "aten.mul.Tensor"} & set(calls)
    regions = [m for m in compiled.module.children() if isinstance(m, CompiledRegion)]
    assert len(regions) == compiler.regions > 1
    for region in regions:
        assert not re.search(rf"{PAGES}, 16, 2, 8|\.copy_\(", region.source.partition("def call")[2])
    compiler.close()


def layers(m: Module) -> None:
    hidden = m.x
    for _ in range(3):
        hidden = torch.ops.flare.rms_norm(torch.sigmoid(hidden) * m.g, m.g, 1e-5)
    m.out.copy_(hidden)


def test_a_region_that_all_layers_have_is_compiled_once() -> None:
    module = Module(SHAPES, layers)
    forward = build_forward(define(module, module.views), HOST)
    compiler = ForwardCompiler(HOST, library="test")
    compiled = compiler.trace(define(module, module.views))
    compiler.compile(compiled)
    assert (compiler.regions, compiler.distinct) == (3, 1)
    want, got = memory(), memory()
    run(forward, want)
    run(compiled, got)
    assert torch.equal(got.bytes["out"], want.bytes["out"])
    compiler.compile(compiler.trace(define(module, module.views)))
    assert (compiler.regions, compiler.distinct) == (6, 1)
    narrow = Module({**SHAPES, "x": (DType.BF16, (1, WIDTH)), "out": (DType.BF16, (1, WIDTH))}, layers)
    compiler.compile(compiler.trace(define(narrow, narrow.views)))
    assert (compiler.regions, compiler.distinct) == (9, 2)


def test_a_view_that_compiled_code_would_copy_is_refused() -> None:
    module = Module(SHAPES, lambda m: m.out.copy_(m.x))
    inside = BufferView(buffer="x", dtype=DType.BF16, shape=(ROWS, WIDTH), offset=2)
    compiler = ForwardCompiler(HOST, library="test")
    forward = compiler.trace(define(module, {**module.views, "x": inside}))
    with pytest.raises(TraceError, match="a view of x begins at byte 2, which is no multiple of 16"):
        compiler.compile(forward)


def test_code_is_compiled_again_for_another_operator_library() -> None:
    from torch._dynamo.utils import counters

    module = Module(SHAPES, lambda m: m.out.copy_(m.x * 3))
    counters.clear()
    for library in ("a", "a", "b"):
        compiler = ForwardCompiler(HOST, library=library)
        compiler.compile(compiler.trace(define(module, module.views)))
    assert (counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"]) == (1, 2)

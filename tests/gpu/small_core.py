"""Captures a small core on this GPU and writes it with what torch's own replay computed.

usage: small_core.py DIRECTORY    writes core.core.safetensors and expected.json there
A process of its own: it collects kernel images from before its first kernel, and leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from small_contract import CHUNK, PAGE, PAGES, TOKENS, WIDTH, small_contract
from small_steps import steps
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from flare.contract import BufferSpec, DType, Initial, Region
from flare.corefile import CoreWriter, Role, TensorSpec
from flare.device.cuda.arena import Arena
from flare.device.cuda.context import Context
from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.graph_compare import confirm_relocation
from flare.device.cuda.graph_export import export_graph
from flare.device.cuda.graph_spec import GraphSpec, KernelNode, encode, image_tensor
from flare.device.cuda.layout import DEFAULT_BASE, plan_layout
from flare.device.cuda.modules import ModuleRegistry
from flare.device.cuda.torch_pool import TorchPool, buffer_tensor, capture

OTHER_BASE = DEFAULT_BASE + (3 << 40)
HIDDEN = 1024
NAMED = {
    "weights/embedding": (Region.WEIGHTS, DType.BF16, (512, WIDTH)),
    "weights/up": (Region.WEIGHTS, DType.BF16, (HIDDEN, WIDTH)),
    "weights/down": (Region.WEIGHTS, DType.BF16, (WIDTH, HIDDEN)),
    "state/steps": (Region.REQUEST_STATE, DType.I32, (4,)),
    "state/shadow": (Region.REQUEST_STATE, DType.BF16, (CHUNK, WIDTH)),
    "pages": (Region.PAGES, DType.U8, (PAGES, PAGE.nbytes)),
    "upload": (Region.UPLOAD, DType.U8, (CHUNK * 4,)),
    "completion": (Region.COMPLETION, DType.U8, (CHUNK * WIDTH * 4,)),
}
TORCH = {DType.BF16: torch.bfloat16, DType.I32: torch.int32, DType.U8: torch.uint8}


@triton.jit
def mix_rows(source, target, steps, WIDTH: tl.constexpr, FACTOR: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    count = tl.load(steps)
    value = tl.load(source + row * WIDTH + columns).to(tl.float32)
    tl.store(target + row * WIDTH + columns, value * FACTOR + (count % 7))


@triton.jit
def shift_rows(source, target, WIDTH: tl.constexpr, EARLY: tl.constexpr):
    """Begins before its predecessor has ended, and lets its successor do so: at once, or behind its work."""
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    if EARLY:
        gdc_launch_dependents()
    gdc_wait()
    value = tl.load(source + row * WIDTH + (columns + 1) % WIDTH)
    tl.store(target + row * WIDTH + columns, value)
    if not EARLY:
        gdc_launch_dependents()


@triton.jit
def append_rows(source, pages, steps, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    place = (tl.load(steps) * 5 + row) % ROWS
    tl.store(pages + place * WIDTH + columns, tl.load(source + row * WIDTH + columns))


@torch.compile(dynamic=False)
def normalised(hidden: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(hidden + residual, (WIDTH,)) + torch.tanh(residual)


class Rig:
    """Buffers, pools and programs over one arena."""

    def __init__(self, driver: CudaDriver, base: int) -> None:
        self.driver = driver
        self.arena = Arena(driver, plan_layout(base))
        self.tensors: dict[str, torch.Tensor] = {}
        random = torch.Generator().manual_seed(7)
        for name, (region, dtype, shape) in NAMED.items():
            nbytes = dtype.itemsize * int(np.prod(shape))
            self.arena.allocate(name, region, nbytes)
            tensor = buffer_tensor(self.arena, name).view(TORCH[dtype]).view(shape)
            tensor.zero_()
            if region is Region.WEIGHTS:
                tensor.copy_(torch.randn(shape, generator=random) / shape[-1] ** 0.5)
            self.tensors[name] = tensor
        self.scratch = TorchPool(self.arena, Region.SCRATCH, "scratch")
        self.temporaries = TorchPool(self.arena, Region.GRAPH_POOL, "graph_pool")
        self.stream = torch.cuda.Stream()

    def program(self, name: str) -> Callable[[], None]:
        return self.start if name == "start" else lambda: self.step(TOKENS[name])

    def start(self) -> None:
        self.tensors["state/steps"].zero_()
        self.clear(self.tensors["pages"])

    def clear(self, tensor: torch.Tensor) -> None:
        """A memset node: torch's own `zero_` launches a kernel."""
        words = tensor.numel() * tensor.element_size() // 4
        stream = torch.cuda.current_stream().cuda_stream
        self.driver.call("cuMemsetD32Async", tensor.data_ptr(), 0, words, stream)

    def step(self, tokens: int) -> None:
        t = self.tensors
        count = t["state/steps"]
        x = t["weights/embedding"][t["upload"].view(torch.int32)[:tokens].long()]
        h = F.silu(x @ t["weights/up"].T) @ t["weights/down"].T
        y = normalised(h, x)
        t["state/shadow"][:tokens].copy_(y)
        work = torch.empty(tokens, WIDTH, device="cuda")
        self.clear(work)
        z = torch.empty_like(y)
        mix_rows[(tokens,)](y, z, count, WIDTH=WIDTH, FACTOR=2)
        mix_rows[(tokens,)](z, y, count, WIDTH=WIDTH, FACTOR=3)
        for number in range(4):
            y, z = z, y
            shift_rows[(tokens,)](z, y, WIDTH=WIDTH, EARLY=number % 2 == 0, launch_pdl=True)
        append_rows[(tokens,)](y, t["pages"].view(torch.bfloat16), count, WIDTH=WIDTH, ROWS=PAGES * CHUNK)
        history = t["pages"].view(torch.bfloat16).view(-1, WIDTH).float().sum(0)
        work += y + history
        count += 1
        t["completion"].view(torch.float32).view(CHUNK, WIDTH)[:tokens].copy_(work)

    def warm_up(self, pool: TorchPool | None) -> None:
        """Everything that is made once: compiled code without `pool`, workspaces inside it."""
        with torch.cuda.stream(self.stream), torch.no_grad():
            for name in TOKENS:
                if pool is None:
                    self.program(name)()
                else:
                    with torch.cuda.use_mem_pool(pool.pool):
                        self.program(name)()
        self.stream.synchronize()

    def capture(self) -> dict[str, torch.cuda.CUDAGraph]:
        self.warm_up(self.scratch)
        graphs = {name: capture(self.program(name), self.temporaries, self.stream) for name in TOKENS}
        self.arena.freeze()
        torch.cuda.synchronize()
        return graphs


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()


def expected(rig: Rig, graphs: dict[str, torch.cuda.CUDAGraph]) -> dict[str, Any]:
    digests = []
    for name, tokens in steps():
        rig.tensors["upload"].view(torch.int32)[: len(tokens)].copy_(torch.from_numpy(tokens))
        graphs[name].replay()
        torch.cuda.synchronize()
        done = rig.tensors["completion"][: len(tokens) * WIDTH * 4]
        digests.append(hashlib.sha256(bytes_of(done)).hexdigest())
    state = {
        name: hashlib.sha256(bytes_of(rig.tensors[name])).hexdigest() for name in ("pages", "state/steps")
    }
    return {"completions": digests, "state": state}


def contract_buffers(rig: Rig) -> list[BufferSpec]:
    starts = {region: rig.arena.layout.start(region) for region in Region}
    specs = []
    for span in rig.arena.book.spans:
        pool = span.name.split("/")[0]
        region, dtype, shape = NAMED.get(span.name) or (
            Region.SCRATCH if pool == "scratch" else Region.GRAPH_POOL,
            DType.U8,
            (span.nbytes,),
        )
        stored = region in (Region.WEIGHTS, Region.SCRATCH)
        undefined = region in (Region.GRAPH_POOL, Region.UPLOAD, Region.COMPLETION)
        specs.append(
            BufferSpec(
                name=span.name,
                region=region,
                dtype=dtype,
                shape=shape,
                offset=span.start - starts[region],
                initial=Initial.BYTES if stored else Initial.UNDEFINED if undefined else Initial.ZERO,
                tensor=span.name if stored else None,
            )
        )
    return specs


def write(path: Path, rig: Rig, specs: dict[str, GraphSpec], registry: ModuleRegistry, arch: str) -> None:
    buffers = contract_buffers(rig)
    tensors = {b.name: bytes_of(buffer_tensor(rig.arena, b.name)) for b in buffers if b.tensor}
    tensors = {b.name: tensors[b.name][: b.nbytes] for b in buffers if b.tensor}
    tensors |= {f"program/{name}": encode(spec) for name, spec in specs.items()}
    digests = set().union(*(spec.images for spec in specs.values()))
    tensors |= {image_tensor(digest): registry.images[digest] for digest in digests}
    tensors["tokenizer"] = b"{}"
    entries = [TensorSpec.document(name, len(data), Role.PROGRAM) for name, data in tensors.items()]
    with CoreWriter(path, entries) as writer:
        for name, data in tensors.items():
            writer.write(name, data)
        writer.seal(small_contract(buffers, arch).model_dump_json())


def refusals(rig: Rig, driver: CudaDriver, context: Context, registry: ModuleRegistry) -> dict[str, str]:
    """What each thing that must fail said."""
    said = {}

    def exported(run: Callable[[], object]) -> str:
        graph = capture(run, rig.temporaries, rig.stream)
        try:
            export_graph(driver, context, graph.raw_cuda_graph(), rig.arena, registry)
        except ValueError as error:
            return f"{type(error).__name__}: {error}"
        return "exported"

    foreign = torch.ones(CHUNK, WIDTH, dtype=torch.bfloat16, device="cuda")
    pinned = torch.ones(CHUNK, WIDTH, dtype=torch.bfloat16).pin_memory()
    shadow = rig.tensors["state/shadow"]
    torch.cuda.synchronize()
    said["foreign operand"] = exported(lambda: shadow.mul_(foreign))
    said["foreign copy"] = exported(lambda: shadow.copy_(foreign))
    said["host copy"] = exported(lambda: shadow.copy_(pinned, non_blocking=True))
    try:
        with torch.cuda.use_mem_pool(rig.scratch.pool):
            torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        said["growth"] = "grew"
    except torch.cuda.OutOfMemoryError:
        said["growth"] = f"{type(rig.scratch.error).__name__}: {rig.scratch.error}"
    return said


def describe(spec: GraphSpec, registry: ModuleRegistry) -> dict[str, Any]:
    kernels = [node for node in spec.nodes if isinstance(node, KernelNode)]
    return {
        "kinds": sorted({type(node).__name__ for node in spec.nodes}),
        "nodes": len(spec.nodes),
        "edges": len(spec.edges),
        "programmatic_edges": sum(edge.programmatic for edge in spec.edges),
        "packed": sum(node.packed for node in kernels),
        "clusters": sum(node.attributes.cluster is not None for node in kernels),
        "images": len(spec.images),
        "image_bytes": sum(len(registry.images[digest]) for digest in spec.images),
        "same_name_images": len({k.image for k in kernels if k.function == "mix_rows"}),
        "functions": sorted({k.function for k in kernels}),
    }


def main(directory: Path) -> None:
    driver = CudaDriver()
    registry = ModuleRegistry()
    registry.watch()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    context = Context(driver)
    rig, other = Rig(driver, DEFAULT_BASE), Rig(driver, OTHER_BASE)
    rig.warm_up(None)
    other.warm_up(None)
    graphs, other_graphs = rig.capture(), other.capture()
    result: dict[str, Any] = {"graphs": {}, "relocation": {}}
    specs = {}
    for name in TOKENS:
        spec = export_graph(driver, context, graphs[name].raw_cuda_graph(), rig.arena, registry)
        second = export_graph(driver, context, other_graphs[name].raw_cuda_graph(), other.arena, registry)
        result["graphs"][name] = describe(spec, registry)
        try:
            spec = confirm_relocation(spec, second)
        except ValueError as error:
            result["relocation"][name] = str(error)
        specs[name] = spec
    write(directory / "core.core.safetensors", rig, specs, registry, context.architecture)
    result |= expected(rig, graphs)
    result["refusals"] = refusals(rig, driver, context, registry)
    registry.close()
    (directory / "expected.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

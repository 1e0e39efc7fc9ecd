"""Preparation knows its target by a protocol; what a GPU's target needs is said before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from prepared_cores import TINY, tiny_request

from flare.contract import BufferSpec, BufferView, DType, Initial, Region
from flare.contract.buffers import dense_strides
from flare.corefile import CoreReader, read_contract
from flare.device.torch_types import TORCH_DTYPES
from flare.errors import DeviceError
from flare.prepare import BufferLayout, ProgramSet, targets
from flare.prepare.cpu_target import CpuTarget
from flare.prepare.cuda_tensors import materialised, upload_idle
from flare.prepare.operator_watch import OperatorWatch
from flare.prepare.plan import plan_serving
from flare.prepare.progress import Progress
from flare.prepare.session import PreparationSession
from flare.prepare.target import ExportedPrograms
from flare.prepare.weights import place_weights, weight_bytes
from flare_recipe_smollm.recipe import RECIPE


class ForeignTarget:
    """Payloads of another format, a segment of its own with contents, and no operators to import."""

    device, instruction_set, weight_copies, table_copies, prefill_chunk = "sm_90", None, 1.0, 1.0, 128

    def versions(self) -> dict[str, str]:
        return {"toolkit": "13.0"}

    def export(self, programs: ProgramSet, progress: Progress) -> ExportedPrograms:
        scratch = BufferSpec(
            name="scratch/0",
            region=Region.SCRATCH,
            dtype=DType.U8,
            shape=(3,),
            offset=0,
            initial=Initial.BYTES,
            tensor="scratch/0",
        )
        return ExportedPrograms(
            format="cuda_graph",
            payloads={f"program/{program.name}": b"graph" for program in programs.programs},
            documents={"scratch/0": b"abc", "cubin/1": b"image"},
            buffers=(*programs.buffers, scratch),
            operator_library=None,
            ledger={"context": 7},
        )


def test_a_core_holds_what_its_target_exports(tiny_checkpoint: Path, tmp_path: Path) -> None:
    request = replace(tiny_request(), calibrate=False)
    path = tmp_path / "foreign"
    session = PreparationSession(RECIPE, request, Progress(), ForeignTarget())
    session.prepare(RECIPE.loader.open(tiny_checkpoint), path)

    with CoreReader(path) as reader:
        contract = read_contract(reader)
        assert bytes(reader.load("cubin/1")) == b"image"
        assert bytes(reader.load("scratch/0")) == b"abc"
    assert contract.identity.device == "sm_90"
    assert contract.identity.operator_library is None
    assert contract.identity.versions["toolkit"] == "13.0"
    assert {payload.format for p in contract.programs for payload in p.payloads} == {"cuda_graph"}
    capacities = contract.capacities
    blocks = {"pages": capacities.pages * contract.page.nbytes, "rows": capacities.rows * contract.row.nbytes}
    assert contract.provenance.memory_ledger == {"context": 7, **blocks}
    assert contract.buffers[-1].name == "scratch/0"


@pytest.mark.parametrize(("chosen", "sizes"), [(None, (16, 32, 64, 128)), (40, (16, 32, 40))])
def test_the_largest_chunk_is_what_suits_the_target_unless_it_is_chosen(
    chosen: int | None, sizes: tuple[int, ...], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    capacities = replace(TINY, prefill_chunk_size=chosen)
    request = replace(tiny_request(), calibrate=False, capacities=capacities)
    session = PreparationSession(RECIPE, request, Progress(), ForeignTarget())
    contract = session.prepare(RECIPE.loader.open(tiny_checkpoint), tmp_path / "core")
    assert contract.capacities.prefill_tokens == sizes


def programs() -> tuple[ProgramSet, Any]:
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=259,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    built = RECIPE.replacements.build(config, DType.F32)
    plan = plan_serving(
        replace(TINY, memory=1 << 30),  # no more blocks than a host has memory for
        schemes=RECIPE.cache_schemes.schemes(config, DType.F32),
        dtype=DType.F32,
        vocab_size=259,
        model_context=256,
        weight_bytes=weight_bytes(built),
        weight_copies=1,
        prefill_chunk=512,
    )
    layout = BufferLayout()
    return RECIPE.programs.compose(plan, built.module, layout, place_weights(built, layout)), built


class HostTensors:
    """Zeros for every buffer, shared by its views."""

    def __init__(self, programs: ProgramSet) -> None:
        self.buffers = {b.name: torch.zeros(b.nbytes, dtype=torch.uint8) for b in programs.buffers}

    def view(self, view: BufferView) -> torch.Tensor:
        typed = self.buffers[view.buffer][view.offset : view.end].view(TORCH_DTYPES[view.dtype])
        return typed.as_strided(view.shape, view.strides or dense_strides(view.shape))


def test_programs_run_on_the_memory_they_are_given() -> None:
    composed, built = programs()
    memory = HostTensors(composed)
    decode = next(program for program in composed.programs if program.name == "decode.4")
    with torch.no_grad(), materialised(composed.programs, memory):
        tensors = {**dict(built.module.named_parameters()), **dict(built.module.named_buffers())}
        assert {tensor.device.type for tensor in tensors.values()} == {"cpu"}
        for program in composed.programs:
            upload_idle(program, memory)
            program.module()
        assert not memory.buffers["state/generated"].any()
        upload_idle(decode, memory)
        (logits,) = decode.module()
        assert logits.shape == (4, 259)
    assert {tensor.device.type for tensor in built.module.parameters()} == {"meta"}
    assert {tensor.device.type for tensor in decode.module.buffers()} == {"meta"}
    assert CpuTarget().export(composed, Progress()).format == "oplist"  # and they can be traced again


def test_an_operator_without_a_kernel_is_named_with_its_operands() -> None:
    library = torch.library.Library("flare_targets", "FRAGMENT")
    library.define("nowhere(Tensor x, Tensor[] more) -> Tensor")
    operands = torch.zeros(2, 3, dtype=torch.bfloat16), [torch.zeros(4, dtype=torch.int32)]
    message = (
        r"program decode.4: operator flare_targets::nowhere has no kernel for BF16\[2, 3\], I32\[4\] on "
    )
    with pytest.raises(DeviceError, match=message + "sm_90"), OperatorWatch("decode.4", "sm_90"):
        torch.ops.flare_targets.nowhere(*operands)
    failed = r"aten::mm failed \(RuntimeError: .*F32\[2, 3\], F32\[2, 3\] on"
    with pytest.raises(DeviceError, match=failed), OperatorWatch("p", "sm_90"):
        torch.mm(torch.zeros(2, 3), torch.zeros(2, 3))


@pytest.mark.parametrize("choose", [targets.check_target, targets.choose_target])
def test_what_a_gpu_needs_is_said(monkeypatch: pytest.MonkeyPatch, choose: Callable[..., object]) -> None:
    monkeypatch.setattr(targets, "_installed", lambda name: name != "triton")
    with pytest.raises(DeviceError, match=r'needs triton: pip install "flare-recipe-x\[cuda\]"'):
        choose("cuda", "flare-recipe-x")


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_installed", lambda name: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", NoDriver())
    with pytest.raises(DeviceError, match="no NVIDIA driver on this machine: no libcuda"):
        targets.choose_target("cuda", "flare-recipe-x")


class NoDriver:
    """cuda-bindings on a machine without libcuda."""

    def cuInit(self, flags: int) -> None:
        raise RuntimeError("no libcuda")

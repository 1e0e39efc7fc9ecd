"""The ledger is what is held: regions, constants still read as they are, and packed copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from altered import load
from torch.multiprocessing.reductions import StorageWeakRef

from flare.contract import DType, Initial, PreparedContract, Region
from flare.device.cpu_memory import CpuMemory
from flare.device.cpu_operators import OperatorTable
from flare.errors import DeviceError

PACKED = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "embed_tokens")


@pytest.fixture(params=["tiny_core", "tiny_core_bf16"])
def core(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def region_bytes(contract: PreparedContract, region: Region) -> int:
    return sum(buffer.nbytes for buffer in contract.buffers if buffer.region is region)


def test_plain_weights_are_freed_when_only_packed_copies_are_read(
    core: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: dict[str, StorageWeakRef] = {}
    packed: dict[object, object] = {}
    release = CpuMemory.release

    def watched(self: CpuMemory, live: set[str]) -> None:
        blocks.update({name: StorageWeakRef(b.untyped_storage()) for name, b in self._blocks.items()})
        release(self, live)

    monkeypatch.setattr(CpuMemory, "release", watched)
    make_table = OperatorTable.__init__

    def kept(self: OperatorTable, library: object) -> None:
        make_table(self, library)  # type: ignore[arg-type]
        self._packed = packed

    monkeypatch.setattr(OperatorTable, "__init__", kept)
    device = load(core)
    contract = device.contract
    constants = {b.name: b for b in contract.buffers if b.initial is Initial.BYTES}
    held = {name for name in constants if not blocks[name].expired()}
    for name in constants:
        # The embedding is read as it is, and packed as the head.
        plain = name.endswith("embed_tokens.weight") or not any(part in name for part in PACKED)
        assert (name in held) == plain, name
    assert device.ledger["weights"] == sum(constants[name].nbytes for name in held)
    tensors = [item for item in packed.values() if isinstance(item, torch.Tensor)]
    assert len(tensors) > len(PACKED)
    assert device.ledger["packed_weights"] == sum(t.numel() * t.element_size() for t in tensors)
    for region in Region:
        if region is not Region.WEIGHTS:
            assert device.ledger.get(region.value, 0) == region_bytes(contract, region)
    device.close()
    assert all(block.expired() for block in blocks.values())
    device.close()


def test_equal_views_are_one_tensor_and_zeros_are_zero(core: Path) -> None:
    device = load(core)
    assert not device.storage("pages").any()
    assert not device.storage("rows").any()
    view = device.contract.row.view("rows", "hidden", device.contract.capacities.rows, 0)
    assert device._memory.view(view) is device._memory.view(view.model_copy())
    assert device._memory.view(view).dtype is (
        torch.float32 if device.contract.schemes[0].dtype is DType.F32 else torch.bfloat16
    )


def test_a_failing_program_is_a_device_error(tiny_core: Path) -> None:
    device = load(tiny_core)
    program = next(p for p in device.contract.programs if p.name == "resume")
    upload = np.full(program.upload_bytes, 0x7F, np.uint8)  # rows and slots far outside
    with pytest.raises(DeviceError, match="program resume failed"):
        device.submit("resume", upload)

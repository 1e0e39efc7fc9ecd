"""The identity of a core's content, and its summary."""

from __future__ import annotations

from pathlib import Path

import pytest
from core_samples import CONTRACT, SPECS, payload, write_core

from flare.contract import DType
from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec, core_digest, overhead, totals


def digest(path: Path) -> str:
    with CoreReader(path) as reader:
        return core_digest(reader)


def test_identity_ignores_place_order_and_reserve(tmp_path: Path, core: Path) -> None:
    with CoreWriter(tmp_path / "other", SPECS[::-1], header_budget_bytes=100_000) as writer:
        for spec in SPECS:
            writer.write(spec.name, payload(spec))
        writer.seal(CONTRACT)
    assert (tmp_path / "other").read_bytes() != core.read_bytes()
    assert digest(tmp_path / "other") == digest(core)


@pytest.mark.parametrize(
    "replacement",
    [
        TensorSpec("weights/norm", DType.I32, (7,), Role.WEIGHT),
        TensorSpec("weights/norm", DType.F32, (7, 1), Role.WEIGHT),
        TensorSpec("weights/norm", DType.F32, (7,), Role.ASSET),
        TensorSpec("weights/norn", DType.F32, (7,), Role.WEIGHT),
    ],
)
def test_identity_covers_every_description(tmp_path: Path, core: Path, replacement: TensorSpec) -> None:
    with CoreWriter(tmp_path / "other", (SPECS[0], replacement, *SPECS[2:])) as writer:
        for spec, original in zip(writer.tensors.values(), SPECS, strict=True):
            writer.write(spec.name, payload(original))
        writer.seal(CONTRACT)
    assert digest(tmp_path / "other") != digest(core)


def test_identity_covers_contract_and_payload(tmp_path: Path, core: Path) -> None:
    assert digest(write_core(tmp_path / "contract", CONTRACT + " ")) != digest(core)
    with CoreWriter(tmp_path / "payload", SPECS) as writer:
        for spec in SPECS:
            data = bytearray(payload(spec))
            if spec.role is Role.PROGRAM:
                data[-1] ^= 1
            writer.write(spec.name, data)
        writer.seal(CONTRACT)
    assert digest(tmp_path / "payload") != digest(core)


def test_totals_by_role(core: Path) -> None:
    with CoreReader(core) as reader:
        summary = totals(reader)
        assert {role: (total.count, total.nbytes) for role, total in summary.items()} == {
            Role.WEIGHT: (6, 76800 + 28 + 4 + 0 + 80 + 33),
            Role.TABLE: (1, 170_000),
            Role.PROGRAM: (1, 777),
            Role.ASSET: (2, 1001),
        }
        assert sum(t.nbytes for t in summary.values()) + overhead(reader) == core.stat().st_size

"""A small core with every kind of tensor, and a way to forge headers whose digest is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flare.contract import DType
from flare.corefile import CoreWriter, Role, TensorSpec
from flare.corefile.header import seal

CONTRACT = '{"words":"a \\"quoted\\" line\\n, Ünïcödé"}'

SPECS = (
    TensorSpec("weights/embed", DType.BF16, (300, 128), Role.WEIGHT),  # 76800 bytes: page aligned
    TensorSpec("weights/norm", DType.F32, (7,), Role.WEIGHT),
    TensorSpec("weights/scale", DType.F32, (), Role.WEIGHT),
    TensorSpec("weights/none", DType.F32, (0, 3), Role.WEIGHT),
    TensorSpec("weights/ids", DType.I64, (5, 2), Role.WEIGHT),
    TensorSpec("weights/f8", DType.F8_E4M3, (33,), Role.WEIGHT),
    TensorSpec("table/ngrams", DType.U8, (1700, 100), Role.TABLE),  # three blocks of 64 KiB
    TensorSpec.document("program/decode-1", 777, Role.PROGRAM),
    TensorSpec.document("asset/tokenizer.json", 1001),
    TensorSpec.document("asset/empty", 0),
)


def payload(spec: TensorSpec) -> bytes:
    """Bytes that depend on the name only, all finite as floats."""
    seed = sum(spec.name.encode())
    return np.random.default_rng(seed).integers(0, 100, spec.nbytes, dtype=np.uint8).tobytes()


def write_core(path: Path, contract: str = CONTRACT, specs: tuple[TensorSpec, ...] = SPECS) -> Path:
    with CoreWriter(path, specs, header_budget_bytes=4096) as writer:
        for spec in specs:
            writer.write(spec.name, payload(spec))
        return writer.seal(contract)


def split(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Header document and data section of a file."""
    room = 8 + int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:room]), raw[room:]


def forge(raw: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with its header document changed and the header digest made right again."""
    document, data = split(raw)
    change(document)
    return forge_text(raw, json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(), data)


def forge_text(raw: bytes, text: bytes, data: bytes) -> bytes:
    digest = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]["flare.header"]
    room = 8 + int.from_bytes(raw[:8], "little")
    return seal(text.replace(digest.encode(), b"0" * 64, 1), room) + data

"""A core with some of its contents exchanged, as a source for the CPU device."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flare.contract import PreparedContract
from flare.corefile import CoreReader, read_contract
from flare.device.cpu import CpuDevice


class Altered:
    """Reads from `reader`, except the tensors in `replaced`."""

    def __init__(self, reader: CoreReader, replaced: Mapping[str, bytes]) -> None:
        self.reader, self.replaced = reader, replaced

    def bytes(self, name: str) -> memoryview:
        if name in self.replaced:
            return memoryview(self.replaced[name])
        return self.reader.bytes(name)

    def load(self, name: str) -> memoryview:
        return self.bytes(name) if name in self.replaced else self.reader.load(name)

    def upload(self, requests: Iterable[tuple[str, memoryview]]) -> None:
        for name, target in requests:
            target[:] = self.bytes(name)


def load(core: Path) -> CpuDevice:
    reader = CoreReader(core)
    return CpuDevice(read_contract(reader), reader)


def load_altered(
    core: Path,
    *,
    contract: Callable[[dict[str, Any]], object] | None = None,
    program: str = "resume",
    listing: Callable[[dict[str, Any]], object] | None = None,
    payload: bytes | None = None,
) -> CpuDevice:
    """Load `core` after changing the JSON of its contract or of one program."""
    reader = CoreReader(core)
    document = json.loads(read_contract(reader).model_dump_json())
    if contract is not None:
        contract(document)
    replaced: dict[str, bytes] = {}
    if listing is not None:
        text = json.loads(bytes(reader.bytes(f"program/{program}")))
        listing(text)
        payload = json.dumps(text).encode()
    if payload is not None:
        replaced[f"program/{program}"] = payload
    return CpuDevice(PreparedContract.model_validate(document), Altered(reader, replaced))


def flip_byte(core: Path, tensor: str, target: Path) -> Path:
    """A copy of the file with the middle byte of a tensor changed."""
    raw = bytearray(core.read_bytes())
    room = 8 + int.from_bytes(raw[:8], "little")
    begin, end = json.loads(raw[8:room])[tensor]["data_offsets"]
    raw[room + (begin + end) // 2] ^= 1
    target.write_bytes(raw)
    return target

"""A core file with some of its contents exchanged and every checksum made right again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flare.corefile import CoreReader, CoreWriter


def rewrite(
    core: Path,
    target: Path,
    *,
    contract: Callable[[dict[str, Any]], object] | None = None,
    tensors: Mapping[str, Callable[[bytearray], object]] = {},
) -> Path:
    """A copy of `core`, whole by its checksums, after `contract` changed the contract's JSON and each of
    `tensors` the bytes of the tensor of that name, in place. The header reserves no room."""
    with CoreReader(core) as reader:
        document = json.loads(reader.contract_json)
        if contract is not None:
            contract(document)
        text = json.dumps(document, separators=(",", ":"))
        specs = tuple(reader.tensors.values())
        with CoreWriter(target, specs, header_budget_bytes=len(json.dumps(text))) as writer:
            for spec in specs:
                data = bytearray(reader.load(spec.name))
                tensors.get(spec.name, bytes)(data)
                writer.write(spec.name, data)
            return writer.seal(text)

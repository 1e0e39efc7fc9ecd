"""Summaries of an open core that read no payload: sizes by role, and the identity of its content."""

from __future__ import annotations

import json
from dataclasses import dataclass

from flare.corefile.format import sha256
from flare.corefile.reader import CoreReader
from flare.corefile.tensor import Role


@dataclass(frozen=True)
class RoleTotal:
    """How many tensors of a role there are, and their bytes."""

    count: int
    nbytes: int


def totals(reader: CoreReader) -> dict[Role, RoleTotal]:
    """Count and bytes of every role, also of those that do not occur."""
    sizes: dict[Role, list[int]] = {role: [] for role in Role}
    for spec in reader.tensors.values():
        sizes[spec.role].append(spec.nbytes)
    return {role: RoleTotal(len(each), sum(each)) for role, each in sizes.items()}


def overhead(reader: CoreReader) -> int:
    """Bytes of the file that are not payload: header, its reserve, pads, checksums."""
    header = reader.header
    return header.data_start + header.layout.nbytes - sum(t.nbytes for t in reader.tensors.values())


def core_digest(reader: CoreReader) -> str:
    """SHA-256 (hex) over contract, tensor descriptions and block digests, without reading payload.

    Equal for two files exactly when contract and every tensor are equal (and checksum blocks have one
    size), wherever the file lies and however its tensors are ordered, padded or reserved for.
    """
    tensors = [
        [
            spec.name,
            spec.dtype.value,
            list(spec.shape),
            spec.role.value,
            reader.placed(spec.name).block_bytes,
            sha256(reader.block_digests(spec.name)).hexdigest(),
        ]
        for spec in sorted(reader.tensors.values(), key=lambda spec: spec.name)
    ]
    document = {"contract": sha256(reader.contract_json.encode()).hexdigest(), "tensors": tensors}
    return sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

"""The header as text: encode, seal with its own digest, and decode with every check that is cheap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from flare.contract import DType
from flare.corefile import format as fmt
from flare.corefile import json_text
from flare.corefile.layout import Layout, Placed, Span, alignment
from flare.corefile.tensor import Role, TensorSpec, check_name
from flare.errors import CoreError

MIN_BLOCK = 4 * 1024
MAX_BLOCK = 1024 * 1024 * 1024
MAX_DIMENSION = 2**63 - 1
MAX_RANK = 64


@dataclass(frozen=True)
class Header:
    """Everything a header says. `data_start` is the file offset of the data section, in bytes;
    `checksums` the SHA-256 of the checksum tensor, 32 bytes."""

    layout: Layout
    contract_json: str
    checksums: bytes
    data_start: int


def encode(layout: Layout, contract_json: str, checksums: bytes) -> bytes:
    """Header text without padding, its digest still zero: finish it with `seal`."""
    blocks = {role.value: role.block_bytes for role in Role}
    roles: dict[str, list[str]] = {role.value: [] for role in Role}
    for placed in layout.tensors:
        roles[placed.spec.role.value].append(placed.spec.name)
    metadata = {
        fmt.KEY_VERSION: str(fmt.CONTAINER_VERSION),
        fmt.KEY_HEADER: fmt.NO_DIGEST,
        fmt.KEY_CHECKSUMS: checksums.hex(),
        fmt.KEY_BLOCKS: json_text.dump(blocks),
        fmt.KEY_ROLES: json_text.dump(roles),
        fmt.KEY_CONTRACT: contract_json,
    }
    document: dict[str, Any] = {"__metadata__": metadata}
    for name, dtype, shape, begin, end in sorted(layout.entries(), key=lambda entry: (entry[3], entry[4])):
        document[name] = {"dtype": dtype.value, "shape": shape, "data_offsets": (begin, end)}
    return json_text.dump(document).encode()


def seal(text: bytes, room: int) -> bytes:
    """The first `room` bytes of the file: length, `text`, spaces, with the digest over all of it."""
    length = room - fmt.LENGTH_BYTES
    assert len(text) <= length, "the header outgrew its room"
    raw = length.to_bytes(fmt.LENGTH_BYTES, "little") + text.ljust(length, b" ")
    opening = fmt.OPENING.match(raw, fmt.LENGTH_BYTES)
    assert opening, "an encoded header begins with its version and digest"
    begin, end = opening.span(2)
    return raw[:begin] + _digest_of(raw, (begin, end)) + raw[end:]


def decode(raw: bytes, file_size: int) -> Header:
    """Read the first bytes of a file, length included. Raises CoreError naming the field at fault."""
    opening = fmt.OPENING.match(raw, fmt.LENGTH_BYTES)
    if opening is None:
        raise CoreError("not a runtime core: a safetensors file without core metadata", field="__metadata__")
    version = int(opening[1])
    if version > fmt.CONTAINER_VERSION:
        raise CoreError(
            f"made by a newer version: container {version}, this engine reads {fmt.CONTAINER_VERSION}",
            field=fmt.KEY_VERSION,
        )
    if _digest_of(raw, opening.span(2)) != opening[2]:
        raise CoreError("the header is damaged: its digest does not match", field=fmt.KEY_HEADER)
    document = json_text.parse(raw[fmt.LENGTH_BYTES :].rstrip(b" "), "header")
    metadata = document.pop("__metadata__")
    for key in fmt.METADATA_KEYS:
        if not isinstance(metadata, dict) or not isinstance(metadata.get(key), str):
            raise CoreError(f"the header lacks {key}", field=key)
    header = Header(
        layout=_layout(document, _roles(metadata[fmt.KEY_ROLES]), _blocks(metadata[fmt.KEY_BLOCKS])),
        contract_json=metadata[fmt.KEY_CONTRACT],
        checksums=_digest(metadata[fmt.KEY_CHECKSUMS]),
        data_start=len(raw),
    )
    if header.data_start % fmt.PAGE:
        raise CoreError(f"data begins at byte {len(raw)}, not on a page", field="header length")
    expected = header.data_start + header.layout.nbytes
    if file_size != expected:
        problem = "truncated" if file_size < expected else "followed by foreign bytes"
        raise CoreError(f"{problem}: {file_size} bytes where the header declares {expected}", field="size")
    return header


def _digest_of(raw: bytes, place: tuple[int, int]) -> bytes:
    """Hex SHA-256 of all of `raw`, with zeros in the place where the digest itself is written."""
    digest = fmt.sha256(raw[: place[0]])
    digest.update(fmt.NO_DIGEST.encode())
    digest.update(memoryview(raw)[place[1] :])
    return digest.hexdigest().encode()


def _layout(document: dict[str, Any], roles: Mapping[str, Role], blocks: Mapping[Role, int]) -> Layout:
    spans: list[tuple[int, int, str]] = []
    tensors: list[Placed] = []
    pads: list[Span] = []
    checksums: Span | None = None
    first_block = 0
    entries = {name: _entry(name, value) for name, value in document.items()}
    for name, (dtype, shape, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        spans.append((begin, end, name))
        if fmt.PAD_NAME.fullmatch(name):
            if dtype is not DType.U8 or end - begin >= fmt.PAGE:
                raise CoreError(f"{name} is not a pad of fewer than {fmt.PAGE} bytes", field=name)
            pads.append(Span(name, begin, end))
            continue
        if begin % alignment(end - begin):
            raise CoreError(f"tensor {name} begins at byte {begin}, misaligned", field=name)
        if name == fmt.CHECKSUM_TENSOR:
            checksums = Span(name, begin, end)
            continue
        check_name(name)
        if name not in roles:
            raise CoreError(f"tensor {name} has no role", field=name)
        placed = Placed(
            TensorSpec(name, dtype, shape, roles[name]), begin, end, blocks[roles[name]], first_block
        )
        tensors.append(placed)
        first_block += placed.blocks
    for (_, end, before), (begin, _, name) in pairwise([(0, 0, "the header"), *spans]):
        if begin != end:
            problem = "overlaps" if begin < end else "leaves a hole after"
            raise CoreError(f"tensor {name} {problem} {before}", field=name)
    if missing := sorted(roles.keys() - {placed.spec.name for placed in tensors}):
        raise CoreError(f"tensor {missing[0]} has a role but is not in the file", field=missing[0])
    if checksums is None or checksums.end != spans[-1][1]:
        raise CoreError("the checksums do not end the file", field=fmt.CHECKSUM_TENSOR)
    if entries[fmt.CHECKSUM_TENSOR][:2] != (DType.U8, (first_block, fmt.DIGEST_BYTES)):
        raise CoreError(f"not the digests of {first_block} blocks", field=fmt.CHECKSUM_TENSOR)
    return Layout(tuple(tensors), tuple(pads), checksums)


def _entry(name: str, value: Any) -> tuple[DType, tuple[int, ...], int, int]:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise CoreError(f"entry {name[:80]!r} is not a tensor", field=name[:80])
    if value["dtype"] not in list(DType):
        raise CoreError(f"tensor {name} has unknown dtype {value['dtype']!r}", field=name)
    dtype, shape = DType(value["dtype"]), _sizes(name, value["shape"])
    offsets = _sizes(name, value["data_offsets"])
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise CoreError(f"tensor {name}: {offsets} is not the span of {dtype}{list(shape)}", field=name)
    return dtype, shape, offsets[0], offsets[1]


def _sizes(name: str, value: Any) -> tuple[int, ...]:
    sized = isinstance(value, list) and len(value) <= MAX_RANK
    if not sized or not all(type(n) is int and 0 <= n <= MAX_DIMENSION for n in value):
        raise CoreError(f"tensor {name}: not a list of sizes", field=name)
    return tuple(value)


def _roles(text: str) -> dict[str, Role]:
    roles: dict[str, Role] = {}
    for role, names in json_text.parse(text, fmt.KEY_ROLES).items():
        if role not in list(Role) or not isinstance(names, list):
            raise CoreError(f"{role!r} is not a role", field=fmt.KEY_ROLES)
        for name in names:
            if not isinstance(name, str) or name in roles:
                raise CoreError(f"{name!r} is listed twice or is not a name", field=fmt.KEY_ROLES)
            roles[name] = Role(role)
    return roles


def _blocks(text: str) -> dict[Role, int]:
    sizes = json_text.parse(text, fmt.KEY_BLOCKS)
    for role in Role:
        if type(size := sizes.get(role.value)) is not int or not MIN_BLOCK <= size <= MAX_BLOCK:
            raise CoreError(f"no usable block size for role {role}: {size!r}", field=fmt.KEY_BLOCKS)
    return {role: sizes[role.value] for role in Role}


def _digest(text: str) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != fmt.DIGEST_BYTES:
        raise CoreError("not a SHA-256 digest", field=fmt.KEY_CHECKSUMS)
    return digest

"""A stored file: a framed header, then payload that the header describes.

    magic      8 bytes
    version    u32, little-endian
    length     u32, bytes of the header
    digest     SHA-256 of the header, 32 bytes
    header     MessagePack map
    payload    as many bytes as the header says, whose SHA-256 the header holds

The header can be checked without reading the payload, the payload before any byte of it is used.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from hashlib import sha256  # 1.7 GB/s with SHA instructions, without the interpreter lock; see flare.corefile
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from flare.cache.stores.base import NAME_BYTES, Bytes, Entry, StoreFault

VERSION = 1
_MAGIC = b"flarepfx"
_PREFIX = struct.Struct("<8sII32s")
_MAX_HEADER = 64 << 20


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """`core` whose state it is, `name` of the prefix, payload bytes and digest. An entry adds what it is:
    its key, its length in tokens, the names of its complete pages end to end, and whether the payload is
    tail page and row or a row alone; a page leaves these empty."""

    core: str
    name: bytes
    nbytes: int
    digest: bytes
    key: tuple[bytes, bytes] | None = None
    tokens: int = 0
    pages: bytes = b""
    tail: bool = False


def header_of(core: str, name: bytes, payload: Sequence[Bytes], entry: Entry | None = None) -> Header:
    """The header of a page, or of `entry`."""
    digest = sha256()
    for part in payload:
        digest.update(part.data)
    nbytes = sum(part.nbytes for part in payload)
    if entry is None:
        return Header(core=core, name=name, nbytes=nbytes, digest=digest.digest())
    return Header(
        core=core,
        name=name,
        nbytes=nbytes,
        digest=digest.digest(),
        key=entry.key,
        tokens=entry.tokens,
        pages=b"".join(entry.pages),
        tail=entry.tail,
    )


def encode(header: Header) -> bytes:
    """The bytes in front of the payload."""
    text = msgspec.msgpack.encode(header)
    return _PREFIX.pack(_MAGIC, VERSION, len(text), sha256(text).digest()) + text


def page_file_bytes(core: str, page_bytes: int) -> int:
    """The size of every page file of a core."""
    header = Header(core=core, name=bytes(NAME_BYTES), nbytes=page_bytes, digest=bytes(32))
    return len(encode(header)) + page_bytes


def write(path: Path, header: Header, payload: Sequence[Bytes]) -> None:
    """Create or replace `path` as a whole. Raises OSError, leaving nothing behind.

    Nothing is flushed to the medium: a file that a power failure tore is found by its size or its digest and
    dropped, so the cost of waiting for the medium would buy nothing but entries."""
    temporary = path.with_suffix(".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            for part in (memoryview(encode(header)), *(block.data for block in payload)):
                _write_all(file.fileno(), part.cast("B"))
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_header(file: BinaryIO) -> Header:
    """The header of an open file, whose size is right; the position is behind it. Raises StoreFault."""
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise StoreFault("truncated")
    magic, version, length, digest = _PREFIX.unpack(prefix)
    if magic != _MAGIC:
        raise StoreFault("foreign")
    if version != VERSION:
        raise StoreFault("of another version")
    text = file.read(length) if length <= _MAX_HEADER else b""
    if len(text) < length:
        raise StoreFault("truncated")
    if sha256(text).digest() != digest:
        raise StoreFault("damaged")
    try:
        header = msgspec.msgpack.decode(text, type=Header)
    except msgspec.MsgspecError as error:
        raise StoreFault("foreign") from error
    if os.fstat(file.fileno()).st_size != file.tell() + header.nbytes:
        raise StoreFault("truncated")
    return header


def read_payload(file: BinaryIO, header: Header) -> Bytes:
    """The payload behind the header, verified. Raises StoreFault."""
    payload = np.empty(header.nbytes, np.uint8)
    view, done = payload.data, 0
    while done < header.nbytes and (count := file.readinto(view[done:])):  # type: ignore[attr-defined]
        done += count
    if done < header.nbytes:
        raise StoreFault("truncated")
    if sha256(payload.data).digest() != header.digest:
        raise StoreFault("damaged")
    return payload


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]

"""Constants of the container, version 1. `docs/core-file.md` is the prose form of this module."""

from __future__ import annotations

import hashlib
import re

CONTAINER_VERSION = 1

ALIGNMENT = 64  # bytes; every tensor that has bytes begins on it
PAGE = 4096  # bytes; the data section and every large tensor begin on it
PAGE_ALIGNED_FROM = 64 * 1024  # bytes; a tensor of this size or more is large

LENGTH_BYTES = 8  # little-endian length of the header, as in every safetensors file
MAX_HEADER_BYTES = 100_000_000  # what the safetensors reference reader accepts

DIGEST_BYTES = 32  # SHA-256
CHECKSUM_TENSOR = "checksum/sha256"
PAD_NAME = re.compile(r"pad/[0-9]{4,}")

# The header begins with exactly this text, so version and digest are known before any JSON is parsed.
KEY_VERSION = "flare.core"
KEY_HEADER = "flare.header"
KEY_CHECKSUMS = "flare.checksums"
KEY_BLOCKS = "flare.blocks"
KEY_ROLES = "flare.roles"
KEY_CONTRACT = "flare.contract"
METADATA_KEYS = (KEY_VERSION, KEY_HEADER, KEY_CHECKSUMS, KEY_BLOCKS, KEY_ROLES, KEY_CONTRACT)
OPENING = re.compile(
    rb'\{"__metadata__":\{"flare\.core":"([1-9][0-9]{0,8})","flare\.header":"([0-9a-f]{64})",'
)
NO_DIGEST = "0" * (2 * DIGEST_BYTES)

# SHA-256 hashes 1.7 GB/s per core with SHA instructions and releases the interpreter lock; BLAKE2b, the
# next strong choice of the standard library, 0.9 GB/s.
sha256 = hashlib.sha256


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple

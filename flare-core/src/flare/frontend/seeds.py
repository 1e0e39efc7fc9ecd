"""Seeds: unsigned 64-bit keys of a request's random stream."""

from __future__ import annotations

import os
from hashlib import blake2b

from flare.errors import RequestError

_MODULUS = 1 << 64


def choice_seed(seed: int | None, choice: int) -> int:
    """The seed of choice number `choice` of a request.

    Without a `seed`: 64 bits of system randomness, new for every choice. With one (-2^63 to 2^64-1, negative
    ones as two's complement): choice 0 draws with `seed` itself, so that it equals a request with n=1, and
    choice k with the first 8 bytes, little endian, of BLAKE2b(seed, k), both as 8 little-endian bytes.

    Raises RequestError for a seed outside 64 bits.
    """
    if seed is None:
        return int.from_bytes(os.urandom(8), "little")
    if not -(_MODULUS >> 1) <= seed < _MODULUS:
        raise RequestError(f"seed must fit 64 bits, got {seed}", field="seed")
    key = seed % _MODULUS
    if choice == 0:
        return key
    message = key.to_bytes(8, "little") + choice.to_bytes(8, "little")
    return int.from_bytes(blake2b(message, digest_size=8).digest(), "little")

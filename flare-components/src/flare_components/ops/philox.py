"""Philox4x32-10, the counter-based generator behind every random draw.

Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. A request's draw number
n is a pure function of (seed, n): nothing about slots, lanes or batches enters.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """One block: four random words for a 128-bit counter and a 64-bit key, in 32-bit words, low first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        a, b = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _MASK, (a >> 32) ^ c3 ^ k1, a & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, counter: int) -> float:
    """Draw number `counter` of the stream `seed`, a float64 strictly inside (0, 1).

    Both are 64-bit integers, signed or not. The block is the one that curand reads for this seed at
    subsequence 0 and word offset 4 * counter: counter words (low, high, 0, 0). The result is the middle of
    one of 2**52 equal cells, chosen by word 0 and the upper 20 bits of word 1, so that its rounding is exact.
    """
    block = philox4x32((counter & _MASK, (counter >> 32) & _MASK, 0, 0), (seed & _MASK, (seed >> 32) & _MASK))
    return ((block[0] << 20 | block[1] >> 12) + 0.5) * 2.0**-52

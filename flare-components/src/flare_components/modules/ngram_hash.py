"""The constants of the hash that tells which rows of an n-gram table a position reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_WORD = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_TABLE_STEP = 10007


@dataclass(frozen=True)
class HashConstants:
    """multipliers i64[M], moduli and offsets i64[G] of `flare::ngram_rows`; `rows` table rows are used."""

    multipliers: Tensor
    moduli: Tensor
    offsets: Tensor
    rows: int


def hash_constants(
    *, order: int, heads: int, vocabulary: int, smallest_modulus: int, seed: int, table: int
) -> HashConstants:
    """Constants of table number `table` (from 0) for n-grams of 2 to `order` tokens with `heads` heads each.

    Multipliers are odd numbers from SplitMix64 below 2^63 / vocabulary, so that products of token ids do not
    wrap. Moduli are consecutive primes from `smallest_modulus` on, over all tables. Source: Steele, Lea,
    Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
    """
    bound = max(1, ((1 << 63) - 1) // max(vocabulary, 1) // 2)
    base = seed + _TABLE_STEP * table
    draws = [_splitmix((base + _GAMMA * (index + 1)) & _WORD) for index in range(order)]
    count = (order - 1) * heads
    moduli: list[int] = []
    for _ in range((table + 1) * count):
        moduli.append(_next_prime(moduli[-1] + 1 if moduli else smallest_modulus))
    moduli = moduli[table * count :]
    offsets = [sum(moduli[:head]) for head in range(count)]
    return HashConstants(
        multipliers=torch.tensor([2 * (draw % bound) + 1 for draw in draws]),
        moduli=torch.tensor(moduli),
        offsets=torch.tensor(offsets),
        rows=sum(moduli),
    )


def _splitmix(value: int) -> int:
    value = (value + _GAMMA) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def _next_prime(value: int) -> int:
    while value < 2 or any(value % divisor == 0 for divisor in range(2, math.isqrt(value) + 1)):
        value += 1
    return value

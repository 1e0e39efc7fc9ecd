"""Logits as integers, so that sums and maxima do not depend on their order.

A key is a logit's place among all float32 numbers; a weight is a probability relative to the largest, in
units of 2^-shift. Integer sums are exact: any number of programs may add them up in any order, and the draw
stays the same.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def key_of(value):
    """float32 -> i64 in [0, 2^32), increasing; -0.0 counts as 0.0, NaN as infinity."""
    value = tl.where(value == 0.0, 0.0, value)
    value = tl.where(value != value, float("inf"), value)
    bits = value.to(tl.int32, bitcast=True).to(tl.int64)
    return tl.where(bits < 0, -1 - bits, bits + 2147483648)


@triton.jit
def value_of(key):
    """The float32 of a key."""
    bits = tl.where(key >= 2147483648, key - 2147483648, -1 - key)
    return bits.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def meet(arrivals, team):
    """Wait until `team` programs have come to this point. Everything that they wrote before is visible."""
    tl.debug_barrier()
    tl.atomic_add(arrivals, 1)
    while tl.atomic_add(arrivals, 0) < team:
        pass
    tl.debug_barrier()

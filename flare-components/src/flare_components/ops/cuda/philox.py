"""Philox4x32-10 on the device: the stream of `flare_components.ops.philox`, bit for bit."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def uniform(seed, counter):
    """Draw number `counter` i64 of the stream `seed` i64, a float64 strictly inside (0, 1)."""
    low: tl.constexpr = 0xFFFFFFFF
    # Words are kept in 64 bits: a product of two is exact there.
    k0 = seed.to(tl.uint64, bitcast=True) & low
    k1 = seed.to(tl.uint64, bitcast=True) >> 32
    c0 = counter.to(tl.uint64, bitcast=True) & low
    c1 = counter.to(tl.uint64, bitcast=True) >> 32
    c2 = c0 & 0
    c3 = c0 & 0
    for _ in tl.static_range(10):
        a = c0 * 0xD2511F53
        b = c2 * 0xCD9E8D57
        c0 = (b >> 32) ^ c1 ^ k0
        c1 = b & low
        c2 = (a >> 32) ^ c3 ^ k1
        c3 = a & low
        k0 = (k0 + 0x9E3779B9) & low
        k1 = (k1 + 0xBB67AE85) & low
    cell = ((c0 << 20) | (c1 >> 12)).to(tl.int64)
    return (cell.to(tl.float64) + 0.5) * 2.220446049250313e-16

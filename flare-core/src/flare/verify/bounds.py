"""How far correct results may be from each other on different machines.

Kernels of another instruction set add in another order, so each rounding of the forward pass may fall the
other way. A layer adds some `_ROUNDINGS` of them to the residual stream, independent of each other, so their
effects grow with the square root of their number (Higham and Mary 2019, "A new approach to probabilistic
rounding error analysis"). Results are rounded to the type of the weights, sums of K products are kept in
float32, which adds sqrt(K) of its own roundings. A relative error of the last hidden vector changes logits in
proportion to their spread over the vocabulary, of which the recorded log-probabilities show the upper end.

Where a model rounds the inputs of products to few bits, that rounding takes the place of the others: see
`flare.prepare.input_rounding`. Vectors that have nothing to do with each other differ by sqrt(2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flare.contract import DType, PreparedContract, Region
from flare.device.direct import Drawn

# Unit roundoff: half the distance from 1 to the next number. Eight-bit weights are exact inputs of products
# whose results are BF16.
_ROUNDOFF = {
    DType.F64: 2.0**-53,
    DType.F32: 2.0**-24,
    DType.F16: 2.0**-11,
    DType.BF16: 2.0**-8,
    DType.F8_E4M3: 2.0**-8,
    DType.F8_E5M2: 2.0**-8,
}
_ROUNDINGS = 8  # per layer: norms, projections, attention, activation, two residual sums
_UNRELATED = math.sqrt(2)
_MARGIN = 2.0  # the largest of hundreds of values, not a typical one


@dataclass(frozen=True)
class Bound:
    """`nats` by which a log-probability may differ, and the arithmetic as text."""

    nats: float
    basis: str


def logprob_bound(contract: PreparedContract, draws: Sequence[Drawn], input_noise: float = 0.0) -> Bound:
    """The bound for `draws` of a core, at least one of them with log-probabilities. `input_noise` is the
    relative difference between two roundings of the inputs of products; 0 where inputs keep their type."""
    weights = [b for b in contract.buffers if b.region is Region.WEIGHTS and b.dtype in _ROUNDOFF]
    roundoff, dtype = max(((_ROUNDOFF[b.dtype], b.dtype.value) for b in weights), default=(2.0**-24, "F32"))
    terms = max((b.shape[-1] for b in weights if len(b.shape) > 1), default=1)
    layers = max(scheme.layers for scheme in contract.schemes)
    unit = max(roundoff, 2.0**-24 * math.sqrt(terms))
    spread = max(max(d.top.values(), default=0.0) - min(d.top.values(), default=0.0) for d in draws)
    spread = max(spread, 1.0)
    what = f"{dtype}, sums of {terms}"
    if input_noise > unit:
        unit, what = input_noise, "inputs rounded to few bits"
    roundings = f"{unit:.3g} ({what}) x sqrt({_ROUNDINGS} x {layers} layers)"
    relative = unit * math.sqrt(_ROUNDINGS * layers)
    if relative > _UNRELATED:
        roundings, relative = f"{_UNRELATED:.3g} (unrelated: {roundings})", _UNRELATED
    basis = f"{_MARGIN:g} x {roundings} x {spread:.3g} (range of the recorded log-probabilities)"
    return Bound(_MARGIN * relative * spread, basis)

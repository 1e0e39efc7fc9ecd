"""Replaying the oracle: the same tokens where the machine is the same, values within bounds elsewhere."""

from __future__ import annotations

import math

from flare.contract import Oracle
from flare.device.base import Device
from flare.device.direct import Drawn
from flare.errors import DeviceError
from flare.verify.comparison import Comparison, compare
from flare.verify.identity import conditions, differing
from flare.verify.replay import replay
from flare.verify.report import Check, Outcome

# A draw moves with about the probability by which the distribution does: below this, the recorded tokens
# come again practically always. What differs more from run to run is compared by values alone.
REPRODUCIBLE = 1e-5
# Nats between two runs under the same conditions. BF16 programs repeat to the bit; sums in FP32 may follow
# addresses, which is far below this.
SAME = 1e-4
# The bound is for the largest of some hundred values; their root mean square stays below this part of it.
TYPICAL = 0.25


def check_oracle(device: Device) -> Check:
    """Replay the oracle of the device's core. Requests must not run meanwhile; slot 0 and its pages are
    used."""
    oracle = device.contract.provenance.oracle
    if oracle is None or not oracle.tokens:
        return Check("oracle", Outcome.SKIPPED, "none recorded")
    here = conditions(device.contract)
    reasons = list(differing(device.contract, here))
    if not _reproducible(oracle):
        reasons.append("results differ from run to run")
    if reasons and not oracle.positions:
        return Check("oracle", Outcome.SKIPPED, f"tokens only, which may differ here: {'; '.join(reasons)}")
    try:
        draws = replay(device, oracle)
    except DeviceError as error:
        return Check("oracle", Outcome.FAILED, str(error), field="provenance.oracle")
    comparison = compare(_recorded(oracle, draws), draws)
    return _judged(oracle, draws, comparison, reasons)


def _judged(oracle: Oracle, draws: list[Drawn], comparison: Comparison, reasons: list[str]) -> Check:
    exact = not reasons
    allowed = oracle.bound
    if exact and allowed is not None:
        allowed = min(allowed, max(SAME, 8 * (oracle.spread or 0.0)))
    facts = {
        "comparison": "exact" if exact else "bounded",
        "tokens": len(draws),
        "tokens_moved": len(comparison.moved),
        "largest_difference": _json(comparison.largest),
        "typical_difference": _json(comparison.typical),
        "allowed_difference": allowed,
        "differing_conditions": reasons,
    }

    def check(outcome: Outcome, detail: str) -> Check:
        return Check(
            "oracle", outcome, detail, None if outcome is Outcome.PASSED else "provenance.oracle", facts
        )

    cause = "rounding" if exact else f"explained by {'; '.join(reasons)}"
    if allowed is not None and not comparison.largest <= allowed:
        return check(
            Outcome.FAILED,
            f"a log-probability at token {comparison.at} differs by {comparison.largest:.3g} nats; "
            f"at most {allowed:.3g} is {cause}",
        )
    if not exact and allowed is not None and not comparison.typical <= TYPICAL * allowed:
        return check(
            Outcome.FAILED,
            f"log-probabilities differ by {comparison.typical:.3g} nats in the root mean square; "
            f"at most {TYPICAL * allowed:.3g} is {cause}",
        )
    values = f"log-probabilities within {comparison.largest:.2g} nats of the recorded ones"
    if exact and comparison.moved:
        at = comparison.moved[0]
        return check(Outcome.FAILED, f"token {at} is {draws[at].token}, prepared as {oracle.tokens[at]}")
    if exact:
        shown = f", {values}" if oracle.positions else ""
        return check(Outcome.PASSED, f"{len(draws)} tokens as recorded{shown}")
    moved = f", {len(comparison.moved)} of {len(draws)} tokens fell the other way" if comparison.moved else ""
    return check(Outcome.PASSED, f"bounded: {values}, {allowed:.3g} allowed{moved} ({'; '.join(reasons)})")


def _json(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _reproducible(oracle: Oracle) -> bool:
    # Cores from before spreads were measured are taken at their word.
    return oracle.spread is None or oracle.spread <= REPRODUCIBLE


def _recorded(oracle: Oracle, draws: list[Drawn]) -> list[Drawn]:
    if not oracle.positions:
        return [Drawn(token) for token in oracle.tokens]
    return [
        Drawn(token, position.logprob, dict(zip(position.top_ids, position.top_logprobs, strict=True)))
        for token, position in zip(oracle.tokens, oracle.positions, strict=True)
    ]

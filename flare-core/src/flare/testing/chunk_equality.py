"""Whether a core gives Transformers' logits however a text is divided into chunks and decode steps."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from flare.contract import DType, SavedHiddenScheme
from flare.corefile import CoreReader, read_contract
from flare.testing.failure import require
from flare.testing.teacher_forcing import (
    Forced,
    capacity_lengths,
    lane_patterns,
    largest,
    partition,
    precision_bound,
)

if TYPE_CHECKING:
    from flare.contract import PreparedContract
    from flare.recipes import Recipe

_DECODED = 6


def check_chunks(
    core: Path,
    recipe: Recipe,
    checkpoint: Path,
    *,
    ids: Sequence[int] | None = None,
    bound: float | None = None,
) -> float:
    """Compare every logit of a text with Transformers' and with those of the undivided text.

    `core` was prepared from `checkpoint`, whose model `recipe.oracle.reference` builds in the core's
    precision. `ids` are the text (random tokens unless given: more than two of the largest chunks where the
    context allows). It runs in one piece, cut in two around every program size, one token at a time, in ten
    random partitions, up to every prefill size and one around it, and as decode steps in every lane of every
    decode program. `bound` is the largest difference allowed; by default it follows from the precision:
    `precision_bound`.

    Returns the largest difference. Raises AssertionError naming the division and the token.
    """
    with CoreReader(core) as reader:
        contract = read_contract(reader)
    dtype = _precision(contract)
    reference = recipe.oracle.reference(recipe.loader.open(checkpoint), dtype)
    forced = Forced(core, reference, ids or _random_text(contract))
    try:
        allowed = bound if bound is not None else precision_bound(forced.want, dtype)
        worst = _check_prefill(forced, allowed)
        return max(worst, _check_decode(forced, allowed))
    finally:
        forced.device.close()


def _check_prefill(forced: Forced, allowed: float) -> float:
    undivided = forced.prefill_logits([])
    worst = _compare(undivided, forced.want, "prefill in one piece", "the reference", allowed)
    for name, cuts, end in _divisions(forced):
        logits = forced.prefill_logits(cuts, end)
        worst = max(
            worst,
            _compare(logits, forced.want, name, "the reference", allowed),
            _compare(logits, undivided, name, "the text in one piece", allowed),
        )
    return worst


def _divisions(forced: Forced) -> Iterator[tuple[str, list[int], int | None]]:
    length, sizes = len(forced.ids), forced.capacities.prefill_tokens
    cuts = {size + step for size in sizes for step in (-1, 0, 1)} | {1, length // 2, length - 1}
    for cut in sorted(cut for cut in cuts if 0 < cut < length):
        yield f"prefill cut at {cut}", [cut], None
    yield "prefill of one token at a time", list(range(1, length)), None
    for seed in range(10):
        parts = partition(length, seed)
        yield f"prefill cut at {', '.join(map(str, parts))}", parts, None
    for end in capacity_lengths(sizes, length):
        yield f"prefill of {end} tokens", [], end


def _check_decode(forced: Forced, allowed: float) -> float:
    begin = len(forced.ids) - _DECODED
    requests = forced.fill_slots(begin)
    worst = 0.0
    for name, lanes in lane_patterns(requests, forced.capacities.decode_lanes):
        found = forced.decode(lanes, begin)
        require(
            found <= allowed,
            "chunk equality",
            f"{name}: logits of the last {_DECODED} tokens differ from the reference by {found:.3g}, "
            f"allowed is {allowed:.3g}",
        )
        worst = max(worst, found)
    return worst


def _compare(logits: Tensor, want: Tensor, division: str, other: str, allowed: float) -> float:
    differences = logits - want[: len(logits)]
    found = largest(differences)
    if found > allowed:
        rows = differences.abs().nan_to_num(float("inf")).amax(dim=-1)
        token = int((rows > allowed).nonzero()[0])
        raise AssertionError(
            f"chunk equality: {division}: logits differ from {other} by {found:.3g}, first behind token "
            f"{token}; allowed is {allowed:.3g}"
        )
    return found


def _precision(contract: PreparedContract) -> DType:
    return next(scheme.dtype for scheme in contract.schemes if isinstance(scheme, SavedHiddenScheme))


def _random_text(contract: PreparedContract) -> list[int]:
    numbers = random.Random(1)
    length = min(2 * contract.capacities.prefill_tokens[-1] + 22, contract.capacities.context)
    return [numbers.randrange(contract.frontend.vocab_size) for _ in range(length)]

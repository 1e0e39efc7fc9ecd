"""How far two runs of one text are from each other, position by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flare.device.direct import Drawn


@dataclass(frozen=True)
class Comparison:
    """`largest` difference of any log-probability in nats (infinite when one is no number), met at position
    `at`, and the root mean square `typical` of all; `moved` are the positions where the tokens differ."""

    largest: float
    typical: float
    at: int
    moved: tuple[int, ...]


def compare(expected: Sequence[Drawn], actual: Sequence[Drawn]) -> Comparison:
    """Compare two runs in which every position has the same tokens before it."""
    pairs = list(zip(expected, actual, strict=True))
    differences = [_differences(a, b) for a, b in pairs]
    largest = [max(each, default=0.0) for each in differences]
    every = [value for each in differences for value in each]
    typical = math.sqrt(sum(value * value for value in every) / max(len(every), 1))
    moved = tuple(position for position, (a, b) in enumerate(pairs) if a.token != b.token)
    top = max(largest, default=0.0)
    return Comparison(top, typical, largest.index(top) if largest else 0, moved)


def _differences(a: Drawn, b: Drawn) -> list[float]:
    """Differences at one position, of every token that either side reports."""
    mine, other = _known(a), _known(b)
    values = [abs(mine[token] - other[token]) for token in mine.keys() & other.keys()]
    values += [_excess(mine[token], b) for token in mine.keys() - other.keys()]
    values += [_excess(other[token], a) for token in other.keys() - mine.keys()]
    return [math.inf if math.isnan(value) else value for value in values]


def _known(drawn: Drawn) -> dict[int, float]:
    return dict(drawn.top) if drawn.logprob is None else {**drawn.top, drawn.token: drawn.logprob}


def _excess(value: float, side: Drawn) -> float:
    """A token that `side` does not list lies at or below the last of its list there."""
    if not side.top:
        return 0.0  # nothing but the drawn token is known there
    return max(value - min(side.top.values()), 0.0)

"""A plan: one program to submit next, and everything its upload needs."""

from __future__ import annotations

from dataclasses import dataclass

from flare.contract import Program
from flare.scheduler.request import Request


@dataclass(slots=True)
class Lane:
    """One active lane: `request` consumes `length` tokens behind the `consumed` before them, and draws a
    token when `sample` is set."""

    request: Request
    consumed: int
    length: int
    sample: bool


@dataclass(slots=True)
class Plan:
    """Submit `program` as frame number `frame` (1, 2, ... in submission order) with `lanes` in front and
    padding behind them."""

    frame: int
    program: Program
    lanes: list[Lane]

"""A plan: one program to submit next, and everything its upload needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flare.cache import SnapshotStorage
from flare.contract import Program, ProgramKind
from flare.scheduler.request import Request


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a state maintenance program copies. Pages are -1 when no page is copied."""

    source_row: int
    destination_row: int
    source_page: int = -1
    destination_page: int = -1


@dataclass(slots=True)
class Lane:
    """One active lane: `request` consumes `length` tokens behind the `consumed` before them, and draws a
    token when `sample` is set. `page_updates` appends (logical page, physical page) pairs to its table.

    In a speculative program it consumes between one and `length` tokens and draws as many; `proposals` are
    the host's for all inputs but the first, empty when the program makes its own.

    In a vision program it encodes image number `image` of the prompt."""

    request: Request
    consumed: int
    length: int
    sample: bool
    page_updates: Sequence[tuple[int, int]] = ()
    proposals: Sequence[int] = ()
    transfer: Transfer | None = None
    image: int | None = None


def prefill_depth(program: Program, lanes: Sequence[Lane]) -> int:
    """Tokens before those of a prefill program, all of which it attends to; 0 for other kinds."""
    return lanes[0].consumed if program.kind is ProgramKind.PREFILL else 0


@dataclass(frozen=True, slots=True)
class Capture:
    """A snapshot on its way: state after `tokens` tokens goes into `storage`. A `last` one is taken when the
    request leaves: its tail page becomes the snapshot's own instead of being copied."""

    request: Request
    tokens: int
    storage: SnapshotStorage
    last: bool


@dataclass(slots=True)
class Plan:
    """Submit `program` as frame number `frame` (1, 2, ... in submission order) with `lanes` in front and
    padding behind them."""

    frame: int
    program: Program
    lanes: list[Lane]
    capture: Capture | None = None

"""Which kernel runs an operator at a shape: candidates are timed once, on operands like those that come.

    with tuning(directory) as report:
        model(...)              # not captured: every new shape is timed, or found in the cache
    graph = capture(model)      # shapes that were timed use their fastest candidate

A shape that was never timed uses the operator's first candidate, which is a library's. Timing waits for the
device, so it never happens during capture.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from flare_components.ops.cuda import timing
from flare_components.ops.cuda.selections import Selections, definition

_KEPT_BY = 0.97
"""A candidate replaces the first one when its time is below this part of the first one's."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run an operator; `call` takes the operator's operands, and writes none of them."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Median microseconds of every candidate, and which of them runs the operator at a shape."""

    operator: str
    shape: Hashable
    name: str
    microseconds: dict[str, float]


@dataclass(slots=True)
class Report:
    """Choices in the order they were made; `measured` of them were timed, the others come from the cache.
    `notes` say which candidates there could not be, and why."""

    choices: list[Choice] = field(default_factory=list)
    measured: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Session:
    report: Report
    selections: Selections | None


_chosen: dict[tuple[str, Hashable], Candidate] = {}
_sessions: list[_Session] = []


@contextmanager
def tuning(cache: Path | None = None) -> Iterator[Report]:
    """Time the candidates of every new shape inside; yields what is found. With a directory `cache`, choices
    made before for this GPU, these versions and these candidates are taken from there, and new ones added."""
    selections = None if cache is None else Selections(cache)
    session = _Session(Report(), selections)
    _sessions.append(session)
    try:
        yield session.report
    finally:
        _sessions.pop()
        if selections is not None:
            selections.write()


def forget() -> None:
    """Drop all choices of this process."""
    _chosen.clear()


def measures() -> bool:
    """Whether a new shape would be timed now."""
    return bool(_sessions) and not torch.cuda.is_current_stream_capturing()


def note(line: str) -> None:
    """Say something once in the report of the innermost `tuning()`, if there is one."""
    if _sessions and line not in _sessions[-1].report.notes:
        _sessions[-1].report.notes.append(line)


def choose(
    operator: str,
    shape: Hashable,
    candidates: Callable[[], Sequence[Candidate]],
    operands: tuple[Any, ...] | Callable[[], tuple[Any, ...] | list[tuple[Any, ...]]],
) -> Candidate:
    """The candidate for `operator` at `shape`, which names everything a choice depends on.

    Inside `tuning()` a new shape is timed on copies of `operands` with random contents, or on what the
    function of that name makes, for operators whose time depends on contents: operands, or a list of sets of
    them that are used in turn. The first candidate wins unless another is 3% faster. Raises
    NotImplementedError when no candidate takes the operands.
    """
    key = (operator, shape)
    if key in _chosen:
        return _chosen[key]
    found = candidates()
    if not found:
        raise NotImplementedError(f"{operator} has no candidate for {shape}")
    if len(found) == 1 or not measures():
        return found[0]
    session = _sessions[-1]
    label = f"{operator} {shape}"
    state = definition([(c.name, c.call) for c in found])
    times = None if session.selections is None else session.selections.find(label, state)
    if times is None or times.keys() != {c.name for c in found}:
        times = _timed(found, operands)
        session.report.measured += 1
        if session.selections is not None:
            session.selections.add(label, state, times)
    best = min(found, key=lambda c: times[c.name])
    if times[best.name] >= _KEPT_BY * times[found[0].name]:
        best = found[0]
    _chosen[key] = best
    session.report.choices.append(Choice(operator, shape, best.name, times))
    return best


def _timed(
    found: Sequence[Candidate],
    operands: tuple[Any, ...] | Callable[[], tuple[Any, ...] | list[tuple[Any, ...]]],
) -> dict[str, float]:
    if isinstance(operands, tuple):
        sets = timing.rotation(operands)
    else:
        made = operands()
        sets = made if isinstance(made, list) else [made]
    return {c.name: round(timing.measure(c.call, sets), 2) for c in found}

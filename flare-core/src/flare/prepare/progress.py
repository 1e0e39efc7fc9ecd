"""Progress of preparation: bars on a terminal, one line per finished phase elsewhere (rich)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars


class RunningPhase:
    """One phase while it runs: a counter, and a bar when there is a terminal."""

    def __init__(self, bars: Bars | None, task: TaskID | None, total: int | None) -> None:
        self.done = 0
        self.total = total
        self._bars = bars
        self._task = task

    def expect(self, total: int) -> None:
        """Set how many units (bytes, or steps) the phase will take."""
        self.total = total
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, total=total)

    def advance(self, amount: int) -> None:
        """Report that `amount` further units are done."""
        self.done += amount
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, amount)


class Progress:
    """Shows the phases of a preparation on `console` (standard error unless given).

    Without a terminal each phase prints one line when it ends, with its time and amount; a phase that
    raises says so. Phases may nest: bars stack, lines print innermost first.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console if console is not None else Console(stderr=True)
        self._bars: Bars | None = None

    def note(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def phase(
        self, title: str, total_bytes: int | None = None, *, total_steps: int | None = None
    ) -> Iterator[RunningPhase]:
        """Run a phase measured in bytes, or in steps when `total_steps` is given."""
        steps = total_steps is not None
        total = total_steps if steps else total_bytes
        outermost = self._console.is_terminal and self._bars is None
        if outermost:
            self._bars = Bars(
                SpinnerColumn(),
                # Each outermost phase is a display of its own: fixed widths keep their bars in line.
                TextColumn("{task.description:<18}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
                _Amount(),
                console=self._console,
            )
            self._bars.start()
        task = self._bars.add_task(title, total=total, steps=steps) if self._bars is not None else None
        running = RunningPhase(self._bars, task, total)
        started = time.perf_counter()
        outcome = "failed after"
        try:
            yield running
            outcome = "done in"
            if self._bars is not None and task is not None and running.total is None:
                self._bars.update(task, total=running.done, completed=running.done)
        finally:
            if not self._console.is_terminal:
                took = time.perf_counter() - started
                self.note(f"{title}: {outcome} {took:.1f} s{_amount(running.done, steps)}")
            if outermost and self._bars is not None:
                self._bars.stop()
                self._bars = None


class _Amount(ProgressColumn):
    """Bytes or steps, whichever the phase counts; nothing for a phase that counts neither."""

    def __init__(self) -> None:
        super().__init__()
        self._columns = {True: MofNCompleteColumn(), False: DownloadColumn()}

    def render(self, task):  # type: ignore[no-untyped-def]
        return self._columns[task.fields["steps"]].render(task) if task.total or task.completed else ""


def _amount(done: int, steps: bool) -> str:
    if not done:
        return ""
    return f", {done} steps" if steps else f", {decimal(done)}"

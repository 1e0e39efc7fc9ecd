"""Progress: one line per phase where nobody watches, bars where somebody does."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from flare.prepare.progress import Progress


def captured(*, terminal: bool) -> tuple[Progress, io.StringIO]:
    text = io.StringIO()
    return Progress(Console(file=text, force_terminal=terminal, width=100, color_system=None)), text


def test_one_line_per_phase_when_not_a_terminal() -> None:
    progress, text = captured(terminal=False)
    with progress.phase("Reading [weights]", 3_000_000) as phase:
        for _ in range(3):
            phase.advance(1_000_000)
        assert text.getvalue() == ""
    with progress.phase("Building", total_steps=2) as phase:
        phase.advance(2)
    with progress.phase("Thinking"):
        pass
    lines = text.getvalue().splitlines()
    assert [re.sub(r"\d+\.\d s", "T", line) for line in lines] == [
        "Reading [weights]: done in T, 3.0 MB",
        "Building: done in T, 2 steps",
        "Thinking: done in T",
    ]


def test_a_failing_phase_says_so() -> None:
    progress, text = captured(terminal=False)
    with pytest.raises(OSError, match="disk"), progress.phase("Writing"):
        raise OSError("disk")
    assert text.getvalue().startswith("Writing: failed after")


def test_nested_phases_share_one_display() -> None:
    progress, text = captured(terminal=True)
    with progress.phase("Outer", total_steps=1) as outer:
        with progress.phase("Inner") as inner:
            inner.expect(10)
            inner.advance(10)
        outer.advance(1)
    with progress.phase("Next"):
        pass
    assert all(title in text.getvalue() for title in ("Outer", "Inner", "Next"))
    assert "1/1" in text.getvalue()
    assert "10/10 bytes" in text.getvalue()

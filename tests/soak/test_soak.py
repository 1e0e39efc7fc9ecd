"""Three minutes of mixed load on a real server: everything comes back. `scripts/soak` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak_run import soak

MINUTES = 3.0


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_everything_comes_back(tiny_core: Path) -> None:
    report = soak(tiny_core, MINUTES, 20, "--threads", "1")
    print(report.summary())
    assert not report.findings, report.summary()
    assert report.played > 200
    assert len(report.samples) > 60

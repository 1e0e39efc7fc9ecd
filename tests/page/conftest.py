from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from browser import Visit, chromium, page_server
from live import LiveServer
from playwright.sync_api import Page, expect

expect.set_options(timeout=20_000)  # a busy machine is no reason to fail


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    # Not for the session: while the driver runs, its event loop counts as this thread's.
    with chromium() as page:
        yield page


@pytest.fixture(scope="session")
def talker() -> Iterator[LiveServer]:
    with page_server() as server:
        yield server


@pytest.fixture
def visit(tab: Page, talker: LiveServer) -> Iterator[Visit]:
    """The page of a model that has everything."""
    talker.reset()
    visit = Visit(tab, talker)
    yield visit
    visit.leave()

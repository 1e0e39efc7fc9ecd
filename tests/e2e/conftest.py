from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from flare_run import FlareRun


@pytest.fixture(scope="session")
def served(tiny_core: Path) -> Iterator[FlareRun]:
    """One server of the tiny core for every test that leaves it as it was."""
    with FlareRun(tiny_core) as server:
        yield server


@pytest.fixture(scope="session")
def client(served: FlareRun) -> Iterator[openai.OpenAI]:
    with served.client() as client:
        yield client

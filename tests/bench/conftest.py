from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_openai import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A fresh fake server on a free loopback port."""
    with FakeServer() as fake:
        fake.behaviour.token_seconds = 0.002
        yield fake

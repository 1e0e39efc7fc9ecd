from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))
from agent_model import agent_server
from live import LiveServer


@pytest.fixture(scope="session")
def _agent_server() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


@pytest.fixture
def agent(_agent_server: LiveServer) -> LiveServer:
    """A server whose model reasons and calls tools; it says hello until it has another script."""
    _agent_server.reset()
    return _agent_server

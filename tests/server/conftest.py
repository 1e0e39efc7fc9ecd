from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
from live import LiveServer
from loop_guard import GUARD


@pytest.fixture(scope="session", autouse=True)
def _guarded_loops() -> Iterator[None]:
    with GUARD.installed():
        yield


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> Iterator[None]:
    """No server's event loop was held up during the test."""
    GUARD.take()
    yield
    assert GUARD.take() == []


@pytest.fixture(scope="session")
def shared_server() -> Iterator[LiveServer]:
    with LiveServer() as server:
        yield server


@pytest.fixture
def server(shared_server: LiveServer) -> LiveServer:
    shared_server.reset()
    return shared_server


@pytest.fixture(scope="session")
def openai_client(shared_server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def http(shared_server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, timeout=20) as client:
        yield client

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from _pytest.runner import runtestprotocol
from live import LiveServer
from loop_guard import GUARD, HELD

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A test during which a loop was held up is run once more. Pages that the system took from this large
    process, and brings back, cost processor time at any place; what the code costs is there again."""
    if not item.path.is_relative_to(HERE):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed and HELD in report.longreprtext for report in reports):
        item._initrequest()  # type: ignore[attr-defined]  # fixtures of its own
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


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

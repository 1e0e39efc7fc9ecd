"""Every feature of the list is served, refused or bypassed as the list says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_model import agent_server
from live import LiveServer

from flare.server.support import FEATURES, Answer, Feature, Protocol

LEAST: dict[Protocol, dict[str, Any]] = {
    Protocol.CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    Protocol.COMPLETIONS: {"prompt": "Hi"},
    Protocol.RESPONSES: {"input": "Hi"},
    Protocol.MESSAGES: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100},
}
CASES = [
    pytest.param(protocol, answer, id=f"{feature.name}-{protocol.name}")
    for feature in FEATURES
    for protocol, answer in feature.answers.items()
]


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server("hello") as server:
        yield server


@pytest.mark.parametrize(("protocol", "answer"), CASES)
def test_a_feature(
    agent: LiveServer, protocol: Protocol, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    response = httpx.post(agent.url + protocol, json={**LEAST[protocol], **answer.body}, timeout=20)
    ignored = [r.getMessage() for r in caplog.records if "ignored unknown fields" in r.getMessage()]
    if answer.kind == "refused":
        assert response.status_code == 400, response.text
        assert response.json()["error"]["code"] == answer.code
        return
    assert response.status_code == 200, response.text
    if answer.kind == "served":
        assert not ignored
    else:
        assert any(f"'{answer.logged}'" in line for line in ignored)


def test_the_smallest_bodies_ask_for_nothing_that_is_ignored(
    agent: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    for protocol, body in LEAST.items():
        assert httpx.post(agent.url + protocol, json=body, timeout=20).status_code == 200
    assert not [r for r in caplog.records if "ignored" in r.getMessage()]


def test_names_are_different() -> None:
    names = [feature.name for feature in FEATURES]
    assert len(set(names)) == len(names)
    assert all(isinstance(feature, Feature) and feature.answers for feature in FEATURES)

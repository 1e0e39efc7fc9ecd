"""Turns of a session, and the part that keeps one from going on from the last."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from agent_model import agent_server

from flare.server.requests import GenerationRequest
from flare.server.sessions import Sessions, part_digests
from flare.server.tools import NO_TOOLS
from flare.server.turn import Turn


def parts(*texts: str) -> tuple[bytes, ...]:
    messages = [{"role": "user", "content": text} for text in texts]
    return part_digests(Turn(id_prefix="", request=GenerationRequest(), messages=messages, tools=NO_TOOLS))


def test_a_conversation_that_grows_is_no_news() -> None:
    sessions = Sessions()
    assert sessions.note("s", parts("a", "b"), "r") is None
    assert sessions.note("s", parts("a", "b", "c", "d"), "r") is None
    assert sessions.note("s", parts("a", "b"), "r") is None  # a branch


def test_the_first_message_that_differs_is_named() -> None:
    sessions = Sessions()
    sessions.note("s", parts("a", "b", "c"), "r")
    assert sessions.note("s", parts("a", "x", "c", "d"), "r") == "messages[1]"
    assert sessions.note("s", parts("a", "x", "c", "e"), "r") == "messages[3]"
    assert sessions.note("other", parts("a", "y"), "r") is None


def test_requests_beside_the_conversation_are_threads_of_their_own() -> None:
    sessions = Sessions()
    sessions.note("s", parts("a", "b"), "r")
    assert sessions.note("s", parts("title", "b"), "r") is None
    assert sessions.note("s", parts("a", "b", "c"), "r") is None


def test_sessions_and_threads_are_bounded() -> None:
    sessions = Sessions()
    for number in range(1000):
        sessions.note(f"s{number}", parts("a"), "r")
        sessions.note("s", parts(f"{number}", "b"), "r")
    assert len(sessions._threads) <= 256
    assert len(sessions._threads["s"]) <= 4


@pytest.mark.parametrize(
    ("path", "headers", "fields", "first", "second"),
    [
        ("/v1/messages", {"x-claude-code-session-id": "s"}, {"max_tokens": 9}, "messages", "messages"),
        ("/v1/chat/completions", {"x-session-id": "s"}, {}, "messages", "messages"),
        ("/v1/responses", {}, {"prompt_cache_key": "s"}, "input", "input"),
    ],
)
def test_every_protocol_says_so_in_the_log(
    path: str,
    headers: dict[str, str],
    fields: dict[str, Any],
    first: str,
    second: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    turns = (("a", "b", "c"), ("a", "x", "c", "d"))
    with agent_server() as server:
        for texts in turns:
            body = {first: [{"role": "user", "content": text} for text in texts], **fields}
            assert httpx.post(server.url + path, json=body, headers=headers).status_code == 200
    (line,) = (record.getMessage() for record in caplog.records if "differs" in record.getMessage())
    assert "messages[1] differs" in line
    assert "of 4 messages 1 go on" in line

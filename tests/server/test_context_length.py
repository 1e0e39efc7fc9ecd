"""A prompt that does not fit: every protocol says in its own shape how long it is, what the context is, and
which one it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from agent_model import agent_server, with_context
from live import LiveServer

CONTEXT = 64
LONG = [{"role": "user", "content": "a long question, " * 20}]
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("messages", {"messages": LONG}),
    "completions": ("prompt", {"prompt": LONG[0]["content"]}),
    "responses": ("input", {"input": LONG}),
    "messages": ("messages", {"messages": LONG, "max_tokens": 32000}),
}
# What Claude Code 2.1.197 reads numbers with, to know how much of a conversation has to go.
NUMBERS = re.compile(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", re.IGNORECASE)


@pytest.fixture(scope="module")
def small() -> Iterator[LiveServer]:
    with agent_server() as server:
        with_context(server, CONTEXT)
        yield server


def post(server: LiveServer, name: str, **fields: Any) -> httpx.Response:
    path = "/v1/chat/completions" if name == "chat" else f"/v1/{name}"
    return httpx.post(server.url + path, json={**PATHS[name][1], **fields}, timeout=20)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", PATHS)
def test_the_error_names_the_context_that_is_needed(small: LiveServer, name: str, stream: bool) -> None:
    """vllm#44576: an agent before a core of 4,096 tokens. Its own wish for output is lowered, not counted."""
    response = post(small, name, stream=stream)

    body = response.json()
    error = body["error"]
    assert response.status_code == 400
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert error["param"] == PATHS[name][0]
    assert body.get("type") == ("error" if name == "messages" else None)
    found = NUMBERS.search(error["message"])
    assert found is not None
    needed = int(error["message"].rpartition(" ")[2])
    assert (int(found[2]), needed) == (CONTEXT, int(found[1]) + 1)
    assert small.engine.counters.submissions == []
    with_context(small, needed)
    assert post(small, name, stream=stream).status_code == 200
    with_context(small, needed - 1)
    assert post(small, name, stream=stream).status_code == 400
    with_context(small, CONTEXT)
    small.reset()


def test_output_that_has_to_be_counts(small: LiveServer) -> None:
    """Chats ask for what they need; agents' protocols for what they can take."""
    short = [{"role": "user", "content": "Hi"}]
    assert post(small, "messages", messages=short).status_code == 200
    assert post(small, "responses", input=short, max_output_tokens=32000).status_code == 200
    error = post(small, "chat", messages=short, max_tokens=100).json()["error"]
    assert error["param"] == "max_tokens"
    prompt = len(small.engine.counters.submissions[-1].prompt)
    assert error["message"] == (
        f"the context length is {CONTEXT} tokens; the prompt has {prompt} and 100 of output were requested, "
        f"{prompt + 100} in total"
    )


def test_clients_know_the_error(small: LiveServer) -> None:
    with (
        openai.OpenAI(base_url=f"{small.url}/v1", api_key="none", max_retries=0) as chats,
        anthropic.Anthropic(base_url=small.url, api_key="none", max_retries=0) as messages,
    ):
        for ask in (
            lambda: chats.chat.completions.create(model="tiny/chat", messages=LONG),  # type: ignore[arg-type]
            lambda: chats.responses.create(model="tiny/chat", input=LONG),  # type: ignore[arg-type]
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                ask()
            assert refused.value.code == "context_length_exceeded"
        with pytest.raises(anthropic.BadRequestError, match=NUMBERS):
            messages.messages.create(model="tiny/chat", messages=LONG, max_tokens=100)  # type: ignore[arg-type]
        # Counting is how clients find out before.
        counted = messages.messages.count_tokens(model="tiny/chat", messages=LONG)  # type: ignore[arg-type]
        assert counted.input_tokens > CONTEXT

"""Outputs that end without an answer say why, and what they took; usage is never 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_model import agent_server
from live import LiveServer, say
from strict_types import events_of

USER = [{"role": "user", "content": "Why?"}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": USER},
    "responses": {"input": USER},
    "messages": {"messages": USER, "max_tokens": 1000},
}
THINKING = "<think>" + "I wonder, " * 50


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


def ended(agent: LiveServer, name: str, stream: bool, limit: int | None = None) -> tuple[str, str, int, int]:
    """Answer, why it ended, tokens of the prompt and of the output."""
    limits = {} if limit is None else {"max_output_tokens" if name == "responses" else "max_tokens": limit}
    body = {**BODIES[name], **limits, "stream": stream}
    if name == "chat/completions" and stream:
        body["stream_options"] = {"include_usage": True}
    response = httpx.post(f"{agent.url}/v1/{name}", json=body, timeout=20)
    assert response.status_code == 200, response.text
    return READERS[name](events_of(response.text) if stream else response.json())


def chat(found: Any) -> tuple[str, str, int, int]:
    if isinstance(found, dict):
        usage, choice = found["usage"], found["choices"][0]
        return choice["message"]["content"], choice["finish_reason"], *counts(usage, "prompt", "completion")
    chunks = [data for _, data in found]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1])
    reason = chunks[-2]["choices"][0]["finish_reason"]
    return text, reason, *counts(chunks[-1]["usage"], "prompt", "completion")


def responses(found: Any) -> tuple[str, str, int, int]:
    response = found if isinstance(found, dict) else found[-1][1]["response"]
    texts = [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]
    details = response["incomplete_details"] or {"reason": response["status"]}
    return "".join(texts), details["reason"], *counts(response["usage"], "input", "output")


def messages(found: Any) -> tuple[str, str, int, int]:
    if isinstance(found, dict):
        text = "".join(block["text"] for block in found["content"] if block["type"] == "text")
        return text, found["stop_reason"], *counts(found["usage"], "input", "output")
    deltas = [data["delta"] for name, data in found if name == "content_block_delta"]
    (last,) = (data for name, data in found if name == "message_delta")
    (start,) = (data["message"]["usage"] for name, data in found if name == "message_start")
    assert start["input_tokens"] == last["usage"]["input_tokens"]  # what a counter in front of it shows
    text = "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")
    return text, last["delta"]["stop_reason"], *counts(last["usage"], "input", "output")


def counts(usage: dict[str, Any], prompt: str, output: str) -> tuple[int, int]:
    assert json.dumps(usage).count("null") == 0
    return usage[f"{prompt}_tokens"], usage[f"{output}_tokens"]


READERS: dict[str, Any] = {"chat/completions": chat, "responses": responses, "messages": messages}
SPENT = {"chat/completions": "length", "responses": "max_output_tokens", "messages": "max_tokens"}
DONE = {"chat/completions": "stop", "responses": "completed", "messages": "end_turn"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_reasoning_that_took_the_whole_limit(agent: LiveServer, name: str, stream: bool) -> None:
    """Elsewhere: no content, usage 0, finish reason "stop", as if the model had nothing to say."""
    agent.engine.script = say(THINKING)
    answer, reason, prompt, output = ended(agent, name, stream, limit=20)
    assert (answer, reason, output) == ("", SPENT[name], 20)
    assert prompt == len(agent.engine.counters.submissions[-1].prompt)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_an_output_that_ends_at_once(agent: LiveServer, name: str, stream: bool) -> None:
    agent.engine.script = say("")
    answer, reason, prompt, output = ended(agent, name, stream)
    assert (answer, reason, output) == ("", DONE[name], 1)  # the end of the message is a token
    assert prompt == len(agent.engine.counters.submissions[-1].prompt)


@pytest.mark.parametrize("name", BODIES)
def test_reasoning_that_does_not_end_before_the_message(agent: LiveServer, name: str) -> None:
    agent.engine.script = say(THINKING)
    whole, streamed = ended(agent, name, False), ended(agent, name, True)
    assert whole == streamed
    assert whole[:2] == ("", DONE[name])
    assert whole[3] > 100

"""Chats and messages in the strict types of the clients' packages, whole and streamed, with everything that a
model can write; a stream says what the whole response says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_model import WEATHER, agent_server, call
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from live import LiveServer, say
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from strict_types import events_of, strictly

TEXTS = {
    "answer": "Sunny.",
    "reasoning": "<think>I look.</think>\n\nSunny.",
    "calls": "<think>I look.</think>A moment.\n" + call("weather", city="Bern", days="2") + call("now"),
    "broken": "Well.\n<tool_call>\n<function=now",
    "nothing": "",
}
USER: Any = [{"role": "user", "content": "Weather?"}]
FUNCTIONS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
TOOLS: Any = [
    {"name": "weather", "input_schema": WEATHER},
    {"name": "now", "input_schema": {"type": "object"}},
]
OURS = {
    "choices.*.message.reasoning_content",
    "choices.*.delta.reasoning_content",
    "choices.*.broken_tool_calls",
    "broken_tool_calls",
}


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


def sent(agent: LiveServer, path: str, **body: Any) -> httpx.Response:
    answer = httpx.post(agent.url + path, json={"model": "tiny/chat", **body}, timeout=20)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("batch", [1, 1000])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("limit", [4, 250])
def test_chats(agent: LiveServer, text: str, batch: int, limit: int) -> None:
    agent.engine.script = say(text, batch=batch, top=((1, -0.5), (300, -1.5)))
    body: Any = {
        "messages": USER,
        "tools": FUNCTIONS,
        "logprobs": True,
        "top_logprobs": 2,
        "max_tokens": limit,
    }
    path = "/v1/chat/completions"
    whole = strictly(ChatCompletion, sent(agent, path, **body).json(), OURS)
    options = {"include_usage": True}
    events = events_of(sent(agent, path, **body, stream=True, stream_options=options).text)
    *chunks, last = [strictly(ChatCompletionChunk, data, OURS) for _, data in events]
    assert not any(name for name, _ in events)
    assert (last.choices, last.usage) == ([], whole.usage)
    assert len({(chunk.id, chunk.created) for chunk in [*chunks, last]}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [whole.choices[0].finish_reason]
    message, deltas = whole.choices[0].message, [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == (message.content or "")
    thought = [(delta.model_extra or {}).get("reasoning_content", "") for delta in deltas]
    assert "".join(thought) == (message.model_extra or {}).get("reasoning_content", "")
    scored = [token for chunk in chunks for token in _scored(chunk.choices[0])]
    assert scored == _scored(whole.choices[0])
    names, arguments = [], {}
    for piece in (piece for delta in deltas for piece in delta.tool_calls or ()):
        assert piece.function is not None
        if piece.id is not None:
            assert (piece.type, piece.index) == ("function", len(names))
            names.append(piece.function.name)
        arguments[piece.index] = arguments.get(piece.index, "") + (piece.function.arguments or "")
    whole_calls = [call.function for call in message.tool_calls or () if call.type == "function"]
    assert [call.name for call in whole_calls] == names
    assert [call.arguments for call in whole_calls] == list(arguments.values())


def _scored(choice: Any) -> list[Any]:
    return [] if choice.logprobs is None else list(choice.logprobs.content or ())


@pytest.mark.parametrize("batch", [1, 1000])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("limit", [4, 250])
def test_messages(agent: LiveServer, text: str, batch: int, limit: int) -> None:
    agent.engine.script = say(text, batch=batch, cached=3)
    body: Any = {"messages": USER, "tools": TOOLS, "max_tokens": limit}
    whole = strictly(Message, sent(agent, "/v1/messages", **body).json(), OURS)
    events = []
    for name, data in events_of(sent(agent, "/v1/messages", **body, stream=True).text):
        assert name == data["type"]
        if name != "ping":  # has no type
            events.append(strictly(RawMessageStreamEvent, data, OURS))  # type: ignore[arg-type]
    start, *inner, delta, stop = events
    assert (start.type, delta.type, stop.type) == ("message_start", "message_delta", "message_stop")
    assert (start.message.content, start.message.stop_reason) == ([], None)
    assert (delta.delta.stop_reason, delta.delta.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert delta.usage.model_dump(exclude_unset=True) == whole.usage.model_dump(exclude_unset=True)
    blocks = []
    while inner:
        blocks.append(_block(inner, len(blocks)))
    finished = [block.model_dump(exclude_unset=True, exclude={"id"}) for block in whole.content]
    if limit > 100:
        assert blocks == finished
    else:  # a call that was cut off is no block of a whole message
        assert blocks[: len(finished)] == finished


def _block(events: list[Any], index: int) -> dict[str, Any]:
    """Take the events of one block; what it is, without its id."""
    start = events.pop(0)
    assert (start.type, start.index) == ("content_block_start", index)
    block: dict[str, Any] = start.content_block.model_dump(exclude_unset=True, exclude={"id"})
    grown = ""
    while (event := events.pop(0)).type != "content_block_stop":
        assert (event.type, event.index) == ("content_block_delta", index)
        match event.delta.type:
            case "thinking_delta":
                block["thinking"] += event.delta.thinking
            case "signature_delta":
                block["signature"] += event.delta.signature
            case "text_delta":
                block["text"] += event.delta.text
            case _:
                grown += event.delta.partial_json
    assert event.index == index
    if block["type"] == "tool_use" and grown.endswith("}"):
        block["input"] = httpx.Response(200, text=grown).json()
    return block


def test_the_other_objects(agent: LiveServer) -> None:
    agent.engine.script = say("hello", top=((1, -0.5), (300, -1.5)))
    prompt: Any = {"prompt": "Hi", "logprobs": 2}
    whole = strictly(Completion, sent(agent, "/v1/completions", **prompt).json())
    events = events_of(sent(agent, "/v1/completions", **prompt, stream=True).text)
    # Chunks before the last have no finish reason, which the type has always.
    *chunks, last = [data["choices"][0] for _, data in events]
    assert all(chunk["finish_reason"] is None for chunk in chunks)
    assert strictly(Completion, events[-1][1]).choices[0].finish_reason == whole.choices[0].finish_reason
    assert "".join(chunk["text"] for chunk in [*chunks, last]) == whole.choices[0].text == "hello"
    (model,) = httpx.get(f"{agent.url}/v1/models").json()["data"]
    strictly(Model, {name: model[name] for name in Model.model_fields if name in model})
    counted = sent(agent, "/v1/messages/count_tokens", messages=USER).json()
    assert strictly(MessageTokensCount, counted).input_tokens > 0

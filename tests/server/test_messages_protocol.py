"""The Messages protocol, through Anthropic's client."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from agent_model import WEATHER, agent_server, call
from live import TOKENIZER, LiveServer, chatter, say

from flare.errors import UnavailableError
from flare.testing.scripted_engine import Script

TOOLS: Any = [
    {"name": "weather", "description": "Looks.", "input_schema": WEATHER},
    {"name": "now", "input_schema": {"type": "object", "properties": {}}},
    {"type": "web_search_20250305", "name": "web_search"},
]
USER: Any = [{"role": "user", "content": "Weather in Bern?"}]
WRITTEN = "<think>I look.</think>\n\nA moment.\n" + call("weather", city="Bern", days="2") + call("now")
ASK: Any = {"model": "tiny/chat", "messages": USER, "max_tokens": 1000}


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(agent: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=agent.url, api_key="none", max_retries=0) as client:
        yield client


def prompt(agent: LiveServer) -> str:
    return TOKENIZER.decode(agent.engine.counters.submissions[-1].prompt, skip_special=False)


def shapes(content: Any) -> list[Any]:
    """Blocks without their ids."""
    found: list[Any] = []
    for block in content:
        if block.type == "thinking":
            found.append(("thinking", block.thinking))
        elif block.type == "text":
            found.append(("text", block.text))
        else:
            assert block.id.startswith("toolu_")
            found.append((block.name, block.input))
    return found


BLOCKS = [
    ("thinking", "I look."),
    ("text", "A moment."),
    ("weather", {"city": "Bern", "days": 2}),
    ("now", {}),
]


@pytest.mark.parametrize("batch", [1, 5, 1000])
def test_a_message_of_all_blocks(agent: LiveServer, client: anthropic.Anthropic, batch: int) -> None:
    agent.engine.script = say(WRITTEN, batch=batch, cached=7)
    whole = client.messages.create(**ASK, tools=TOOLS)
    assert shapes(whole.content) == BLOCKS
    assert (whole.stop_reason, whole.role, whole.model) == ("tool_use", "assistant", "tiny/chat")
    prompt_tokens = len(agent.engine.counters.submissions[-1].prompt)
    assert whole.usage.input_tokens == prompt_tokens - 7
    assert whole.usage.cache_read_input_tokens == 7
    assert whole.usage.output_tokens > 20

    with client.messages.stream(**ASK, tools=TOOLS) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert shapes(final.content) == BLOCKS
    assert final.stop_reason == "tool_use"
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.cache_read_input_tokens == 7
    assert events[0].type == "message_start"
    assert events[-1].type == "message_stop"
    assert 'TOOLS [{"type": "function", "function": {"name": "weather"' in prompt(agent)
    assert "web_search" not in prompt(agent)


def test_the_events_are_those_of_the_protocol(agent: LiveServer) -> None:
    agent.engine.script = say(WRITTEN)
    body = {**ASK, "tools": TOOLS, "stream": True}
    text = httpx.post(f"{agent.url}/v1/messages?beta=true", json=body, timeout=20).text
    events = [event.split("\n") for event in text.strip().split("\n\n")]
    named = [
        (lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))) for lines in events
    ]
    assert all(name == data["type"] for name, data in named)
    assert [name for name, _ in named][:2] == ["message_start", "ping"]
    start = named[0][1]["message"]
    assert set(start["usage"]) == {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    }
    blocks = [data for name, data in named if name.startswith("content_block")]
    opened = -1
    for data in blocks:  # one behind the other, numbered
        if data["type"] == "content_block_start":
            opened += 1
        assert data["index"] == opened
    signed = [data for data in blocks if data.get("delta", {}).get("type") == "signature_delta"]
    assert len(signed) == 1
    inputs = [
        d["delta"]["partial_json"] for d in blocks if d.get("delta", {}).get("type") == "input_json_delta"
    ]
    assert len(inputs) > 5


def test_why_a_message_ended(agent: LiveServer, client: anthropic.Anthropic) -> None:
    agent.engine.script = say("one two three")
    assert client.messages.create(**ASK).stop_reason == "end_turn"
    stopped = client.messages.create(**ASK, stop_sequences=["two"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "two")
    assert shapes(stopped.content) == [("text", "one ")]
    agent.engine.script = chatter()
    cut = client.messages.create(**{**ASK, "max_tokens": 5})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 5)


def test_a_limit_above_the_context_is_lowered(agent: LiveServer, client: anthropic.Anthropic) -> None:
    agent.engine.script = say("hello")
    client.messages.create(**{**ASK, "max_tokens": 20000})
    submitted = agent.engine.counters.submissions[-1]
    assert submitted.max_tokens == 4096 - len(submitted.prompt)
    with pytest.raises(anthropic.BadRequestError, match="4096 tokens"):
        client.messages.create(**{**ASK, "messages": [{"role": "user", "content": "x" * 5000}]})


def test_a_conversation_becomes_a_prompt(agent: LiveServer, client: anthropic.Anthropic) -> None:
    agent.engine.script = say("Sunny.")
    messages: Any = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Weather?", "cache_control": {"type": "ephemeral"}}],
        },
        {"role": "system", "content": "Be short."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look.", "signature": "unsigned"},
                {"type": "redacted_thinking", "data": "?"},
                {"type": "text", "text": "A moment."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}},
                {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "21 degrees"}],
                },
                {"type": "tool_result", "tool_use_id": "t2"},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]
    system: Any = [
        {
            "type": "text",
            "text": "x-anthropic-billing-header: cc_version=2.1.197.abc; cc_entrypoint=sdk-cli;",
        },
        {"type": "text", "text": "You help."},
        {"type": "text", "text": "Always."},
    ]
    client.messages.create(**{**ASK, "messages": messages}, system=system, thinking={"type": "disabled"})
    assert prompt(agent) == (
        "system: You help.\nAlways.\n"
        "user: Weather?\n"
        "system: Be short.\n"
        'assistant: <think>I look.</think>A moment.CALL weather {"city": "Bern"}CALL now {}\n'
        "tool: 21 degrees\n"
        "tool: \n"
        "user: Well?\n"
        "thinking=False\n"
        "assistant: "
    )


def test_what_a_client_changes_in_every_request_is_not_in_the_prompt(
    agent: LiveServer, client: anthropic.Anthropic
) -> None:
    """Otherwise no prompt goes on from the last one (musistudio/claude-code-router#1220)."""
    agent.engine.script = say("hello")
    counted = []
    for changing in ("1e0", "7f3"):
        billing = f"x-anthropic-billing-header: cc_version=2.1.197.{changing}; cc_entrypoint=sdk-cli;"
        system: Any = [{"type": "text", "text": billing}, {"type": "text", "text": "You help."}]
        client.messages.create(**ASK, system=system)
        counted.append(client.messages.count_tokens(model="tiny/chat", messages=USER, system=system))
    first, second = (submit.prompt for submit in agent.engine.counters.submissions[-2:])
    assert first == second
    assert prompt(agent).startswith("system: You help.\n")
    assert [count.input_tokens for count in counted] == [len(first)] * 2
    client.messages.create(**ASK, system=[{"type": "text", "text": "x-anthropic-billing-header: alone"}])
    assert prompt(agent).startswith("user: ")


def test_choices_of_tools(agent: LiveServer, client: anthropic.Anthropic) -> None:
    agent.engine.script = say(call("now") + call("now"))
    offer: Any = {**ASK, "tools": TOOLS}
    one = client.messages.create(**offer, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert len(one.content) == 1
    named = client.messages.create(**offer, tool_choice={"type": "tool", "name": "now"})
    assert [block.type for block in named.content] == ["tool_use", "tool_use"]
    assert "weather" not in prompt(agent)
    assert client.messages.create(**offer, tool_choice={"type": "none"}).content[0].type == "text"
    agent.engine.script = say("No.")
    with pytest.raises(anthropic.InternalServerError, match="tool_choice"):
        client.messages.create(**offer, tool_choice={"type": "any"})


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_call_is_reported(agent: LiveServer, client: anthropic.Anthropic, stream: bool) -> None:
    agent.engine.script = say("Well.\n<tool_call>\n<function=now")
    if stream:
        with client.messages.stream(**ASK, tools=TOOLS) as running:
            events = list(running)
        message = running.get_final_message()
        broken = next(e for e in events if e.type == "message_delta").model_extra
    else:
        message = client.messages.create(**ASK, tools=TOOLS)
        broken = message.model_extra
    assert shapes(message.content) == [("text", "Well.")]
    assert (broken or {})["broken_tool_calls"] == ["<tool_call>\n<function=now"]


def test_counting(agent: LiveServer, client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="tiny/chat", messages=USER, tools=TOOLS, system="Be short.")
    agent.engine.script = say("hello")
    used = client.messages.create(**ASK, tools=TOOLS, system="Be short.").usage
    assert counted.input_tokens == used.input_tokens


def test_errors_have_the_envelope(agent: LiveServer, client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(**{**ASK, "model": "other"})
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    bad: Any = [{"role": "user", "content": [{"type": "document", "source": {}}]}]
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(**{**ASK, "messages": bad})
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["param"] == "messages[0].content[0]"
    assert body["request_id"] == refused.value.response.headers["x-request-id"]
    agent.engine.script = lambda submit: Script(tokens=[1], refusal=UnavailableError("full"))
    with pytest.raises(anthropic.APIStatusError) as full:
        client.messages.create(**ASK)
    assert full.value.status_code == 503
    unread = httpx.post(
        f"{agent.url}/v1/messages", content=b"{", headers={"content-type": "application/json"}
    )
    assert unread.json()["error"]["type"] == "invalid_request_error"


def test_a_failure_ends_a_stream_with_an_error(agent: LiveServer, client: anthropic.Anthropic) -> None:
    agent.engine.script = lambda submit: Script(tokens=TOKENIZER.encode("la "), fail_after=3)
    with pytest.raises(anthropic.APIStatusError) as failed, client.messages.stream(**ASK) as stream:
        list(stream)
    assert failed.value.body["error"]["type"] == "api_error"  # type: ignore[index]


def test_images_of_a_model_that_takes_none(client: anthropic.Anthropic) -> None:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(file.getvalue()).decode()}
    content: Any = [{"type": "image", "source": source}]
    with pytest.raises(anthropic.BadRequestError, match="image"):
        client.messages.create(**{**ASK, "messages": [{"role": "user", "content": content}]})

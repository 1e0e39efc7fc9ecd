"""Calls of tools in chats, through OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from agent_model import WEATHER, agent_server, call
from live import END, TOKENIZER, LiveServer, say

from flare.testing.scripted_engine import Script

TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Looks.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
USER: Any = [{"role": "user", "content": "Weather in Bern?"}]
BOTH = "<think>I look.</think>\n\nA moment.\n" + call("weather", city="Bern", days="2") + "\n" + call("now")


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(agent: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{agent.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def prompt(agent: LiveServer) -> str:
    """What the last request's prompt was."""
    return TOKENIZER.decode(agent.engine.counters.submissions[-1].prompt, skip_special=False)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_calls_come_whole_and_streamed(agent: LiveServer, client: openai.OpenAI, batch: int) -> None:
    agent.engine.script = say(BOTH, batch=batch)
    whole = client.chat.completions.create(model="tiny/chat", messages=USER, tools=TOOLS).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content == "A moment."
    assert whole.message.model_extra == {"reasoning_content": "I look."}
    calls = whole.message.tool_calls or []
    assert [(each.type, each.function.name) for each in calls] == [
        ("function", "weather"),
        ("function", "now"),
    ]
    assert json.loads(calls[0].function.arguments) == {"city": "Bern", "days": 2}
    assert calls[1].function.arguments == "{}"
    assert len({each.id for each in calls}) == 2

    with client.chat.completions.stream(model="tiny/chat", messages=USER, tools=TOOLS) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    streamed = final.message.tool_calls or []
    assert [(s.function.name, s.function.arguments) for s in streamed] == [
        (c.function.name, c.function.arguments) for c in calls
    ]
    assert all(each.id.startswith("call_") for each in streamed)
    assert '"name": "weather"' in prompt(agent)


def test_arguments_are_streamed_while_they_are_written(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = say(call("weather", city="A" * 40))
    pieces = [
        piece.function.arguments
        for chunk in client.chat.completions.create(
            model="tiny/chat", messages=USER, tools=TOOLS, stream=True
        )
        for piece in chunk.choices[0].delta.tool_calls or []
        if piece.function and piece.function.arguments
    ]
    assert len(pieces) > 30
    assert json.loads("".join(pieces)) == {"city": "A" * 40}


def test_without_tools_a_call_is_text(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = say(call("now"))
    for options in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        choice = client.chat.completions.create(model="tiny/chat", messages=USER, **options).choices[0]  # type: ignore[call-overload]
        assert (choice.message.content, choice.message.tool_calls) == (call("now"), None)
        assert choice.finish_reason == "stop"
        assert "TOOLS" not in prompt(agent)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["<tool_call>\n<function=now", "<tool_call>\nnow()\n</tool_call>"])
def test_what_is_no_call_is_reported_and_no_answer(
    agent: LiveServer, client: openai.OpenAI, text: str, stream: bool
) -> None:
    agent.engine.script = say("Well.\n" + text)
    options: Any = {"model": "tiny/chat", "messages": USER, "tools": TOOLS}
    if stream:
        chunks = list(client.chat.completions.create(**options, stream=True))
        shown = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        choice = chunks[-1].choices[0]
    else:
        choice = client.chat.completions.create(**options).choices[0]
        shown = choice.message.content
    assert shown == "Well."
    assert choice.finish_reason == "stop"
    assert (choice.model_extra or {})["broken_tool_calls"] == [text]


def test_a_call_that_was_cut_off_is_no_whole_one(agent: LiveServer, client: openai.OpenAI) -> None:
    tokens = [*TOKENIZER.encode(call("weather", city="Bern")), END]
    agent.engine.script = lambda submit: Script(tokens=tokens)
    choice = client.chat.completions.create(
        model="tiny/chat", messages=USER, tools=TOOLS, max_tokens=len(tokens) - 36
    ).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments.startswith('{"city": "')


def test_a_required_call(agent: LiveServer, client: openai.OpenAI) -> None:
    options: Any = {"model": "tiny/chat", "messages": USER, "tools": TOOLS, "tool_choice": "required"}
    agent.engine.script = say(call("now"))
    assert client.chat.completions.create(**options).choices[0].finish_reason == "tool_calls"
    assert prompt(agent).endswith("Weather in Bern?\n\nAnswer with a call of a tool.\nassistant: ")
    agent.engine.script = say("No.")
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(**options)
    assert refused.value.code == "tool_choice_unsatisfied"
    with pytest.raises(openai.APIError, match="did not complete a call"):
        list(client.chat.completions.create(**options, stream=True))


def test_a_named_tool_is_the_only_one(agent: LiveServer, client: openai.OpenAI) -> None:
    options: Any = {"model": "tiny/chat", "messages": USER, "tools": TOOLS}
    options["tool_choice"] = {"type": "function", "function": {"name": "now"}}
    agent.engine.script = say("<think>Hm.</think>I look. " + call("now"))
    message = client.chat.completions.create(**options).choices[0].message
    assert (message.content, len(message.tool_calls or [])) == (None, 1)
    assert (message.model_extra or {})["reasoning_content"] == "Hm."
    assert "weather" not in prompt(agent)
    agent.engine.script = say(call("weather", city="Bern"))
    with pytest.raises(openai.InternalServerError, match="did not complete"):
        client.chat.completions.create(**options)


def test_one_call_at_most(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = say(call("now") + call("now") + "and more")
    choice = client.chat.completions.create(
        model="tiny/chat", messages=USER, tools=TOOLS, parallel_tool_calls=False
    ).choices[0]
    assert len(choice.message.tool_calls or []) == 1
    assert choice.finish_reason == "tool_calls"
    agent.wait(lambda: agent.engine.running == 0)


def test_results_and_reasoning_go_back_into_the_prompt(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = say("Sunny.")
    turns: Any = [
        *USER,
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I look.",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Bern"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "21 degrees"},
    ]
    client.chat.completions.create(model="tiny/chat", messages=turns, tools=TOOLS)
    assert "<think>I look.</think>" in prompt(agent)
    assert 'CALL weather {"city": "Bern"}' in prompt(agent)
    assert "tool: 21 degrees" in prompt(agent)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", "now"),
        ("tools", [{"type": "function"}]),
        ("tools", [{"type": "function", "function": {"name": "a b"}}]),
        ("tools", [{"type": "function", "function": {"name": "a", "parameters": []}}]),
        ("tools", [TOOLS[0], TOOLS[0]]),
        ("tool_choice", "maybe"),
        ("tool_choice", {"type": "function", "function": {"name": "other"}}),
    ],
)
def test_tools_that_are_none(agent: LiveServer, client: openai.OpenAI, field: str, value: Any) -> None:
    options: Any = {"model": "tiny/chat", "messages": USER, "tools": TOOLS} | {field: value}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**options)
    assert (refused.value.param or "").startswith(field)


def test_a_choice_needs_tools(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="needs tools"):
        client.chat.completions.create(model="tiny/chat", messages=USER, tool_choice="required")


def test_a_model_without_a_format_of_calls(server: LiveServer, openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="format of tool calls"):
        openai_client.chat.completions.create(model="tiny/chat", messages=USER, tools=TOOLS)

"""An answer of a schema beside tools: either comes, whole and streamed alike, in all three protocols."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from agent_model import WEATHER, agent_server, call
from live import LiveServer, say

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
ANSWER = '{"x": "<tool_call> is a word"}'  # an answer that has begun is one to its end
CALLS = call("weather", city="Bern")
OUTPUTS = {
    "answer": ANSWER,
    "call": CALLS,
    "thought": "<think>Hm.</think>\n\n" + ANSWER,
    "cut": "<think>Hm." + CALLS,
}
Shown = tuple[str, list[tuple[str, Any]]]


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


def chat(url: str, stream: bool) -> Shown:
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    asked: Any = {
        "model": "tiny/chat",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": tools,
        "response_format": form,
    }
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if stream:
            text, calls = "", []
            for chunk in client.chat.completions.create(**asked, stream=True):
                delta = chunk.choices[0].delta
                text += delta.content or ""
                for piece in delta.tool_calls or []:
                    if piece.function.name:
                        calls.append([piece.function.name, ""])
                    calls[-1][1] += piece.function.arguments or ""
            return text, [(name, json.loads(arguments)) for name, arguments in calls]
        message = client.chat.completions.create(**asked).choices[0].message
    calls = [(each.function.name, json.loads(each.function.arguments)) for each in message.tool_calls or []]
    return message.content or "", calls


def responses(url: str, stream: bool) -> Shown:
    asked: Any = {
        "model": "tiny/chat",
        "input": "Hi",
        "tools": [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    }
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if stream:
            with client.responses.stream(**asked) as events:
                response = events.get_final_response()
        else:
            response = client.responses.create(**asked)
    calls = [(e.name, json.loads(e.arguments)) for e in response.output if e.type == "function_call"]
    return response.output_text, calls


def messages(url: str, stream: bool) -> Shown:
    asked: Any = {
        "model": "tiny/chat",
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "weather", "input_schema": WEATHER}],
        "extra_body": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    }
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        if stream:
            with client.messages.stream(**asked) as events:
                message: Any = events.get_final_message()
        else:
            message = client.messages.create(**asked)
    text = "".join(block.text for block in message.content if block.type == "text")
    return text, [(block.name, block.input) for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize("ask", [chat, responses, messages], ids=["chat", "responses", "messages"])
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("batch", [1, 1000])
def test_an_answer_or_a_call(agent: LiveServer, ask: Any, output: str, batch: int) -> None:
    agent.engine.script = say(OUTPUTS[output], batch=batch)
    text, calls = whole = ask(agent.url, stream=False)
    assert ask(agent.url, stream=True) == whole
    if ANSWER in OUTPUTS[output]:
        assert (text, calls) == (ANSWER, [])
    else:
        assert (text, calls) == ("", [("weather", {"city": "Bern"})])
    grammar = json.loads(agent.engine.counters.submissions[-1].grammar)["grammars"]
    assert 'called: "weather"' in grammar[0]["lark_grammar"]
    assert grammar[1]["json_schema"]["required"] == ["x"]

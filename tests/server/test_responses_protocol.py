"""The Responses protocol, through OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from agent_model import WEATHER, agent_server, call
from live import TOKENIZER, LiveServer, chatter, say
from openai.types.responses import Response

from flare.testing.scripted_engine import Script

TOOLS: Any = [
    {"type": "function", "name": "weather", "description": "Looks.", "parameters": WEATHER, "strict": False},
    {"type": "custom", "name": "shell", "description": "Runs.", "format": {"type": "text"}},
    {
        "type": "namespace",
        "name": "clock",
        "description": "Time.",
        "tools": [{"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}],
    },
    {"type": "web_search"},
]
WRITTEN = (
    "<think>I look.</think>\n\nA moment.\n"
    + call("weather", city="Bern", days="2")
    + call("shell", input='echo "hi"')
    + call("clock__now")
)
ASK: Any = {"model": "tiny/chat", "input": "Weather in Bern?", "store": False}


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(agent: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{agent.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def prompt(agent: LiveServer) -> str:
    return TOKENIZER.decode(agent.engine.counters.submissions[-1].prompt, skip_special=False)


def shapes(response: Response) -> list[Any]:
    """Output items without their ids."""
    found: list[Any] = []
    for item in response.output:
        assert item.status == "completed"  # type: ignore[union-attr]
        if item.type == "reasoning":
            found.append(("reasoning", (item.content or [])[0].text))
        elif item.type == "message":
            found.append(("message", item.content[0].text))  # type: ignore[union-attr]
        elif item.type == "function_call":
            found.append((item.namespace, item.name, json.loads(item.arguments)))
        else:
            assert item.type == "custom_tool_call"
            found.append((item.name, item.input))
    return found


ITEMS = [
    ("reasoning", "I look."),
    ("message", "A moment."),
    (None, "weather", {"city": "Bern", "days": 2}),
    ("shell", 'echo "hi"'),
    ("clock", "now", {}),
]


@pytest.mark.parametrize("batch", [1, 5, 1000])
def test_a_response_of_all_items(agent: LiveServer, client: openai.OpenAI, batch: int) -> None:
    agent.engine.script = say(WRITTEN, batch=batch, cached=7)
    whole = client.responses.create(**ASK, tools=TOOLS)
    assert shapes(whole) == ITEMS
    assert (whole.status, whole.object, whole.output_text) == ("completed", "response", "A moment.")
    assert whole.usage is not None
    assert whole.usage.input_tokens == len(agent.engine.counters.submissions[-1].prompt)
    assert whole.usage.input_tokens_details.cached_tokens == 7
    assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens

    with client.responses.stream(**ASK, tools=TOOLS) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert shapes(final) == ITEMS  # type: ignore[arg-type]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert '"name": "clock__now"' in prompt(agent)
    assert "web_search" not in prompt(agent)


def streamed(agent: LiveServer, **fields: Any) -> list[dict[str, Any]]:
    text = httpx.post(f"{agent.url}/v1/responses", json={**ASK, **fields, "stream": True}, timeout=20).text
    events = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def test_every_item_begins_and_ends_once_with_one_id(agent: LiveServer) -> None:
    agent.engine.script = say(WRITTEN)
    events = streamed(agent, tools=TOOLS)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3, 4]
    assert [event["item"]["id"] for event in added] == [event["item"]["id"] for event in done]
    final = events[-1]["response"]
    assert final["output"] == [event["item"] for event in done]
    for kind, item in (("response.output_text", 1), ("response.reasoning_text", 0)):
        pieces = [event["delta"] for event in events if event["type"] == f"{kind}.delta"]
        (whole,) = (event for event in events if event["type"] == f"{kind}.done")
        assert "".join(pieces) == whole["text"]
        assert whole["item_id"] == done[item]["item"]["id"]
    arguments = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    assert json.loads("".join(arguments[:-1]).partition("}")[0] + "}") == {"city": "Bern", "days": 2}
    (typed,) = (e for e in events if e["type"] == "response.custom_tool_call_input.done")
    assert typed["input"] == 'echo "hi"'
    whole_response = httpx.post(f"{agent.url}/v1/responses", json={**ASK, "tools": TOOLS}).json()
    assert set(whole_response) == set(final)


def test_a_conversation_becomes_a_prompt(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = say("<think>Warm.</think>Sunny.")
    include: Any = ["reasoning.encrypted_content"]
    first = client.responses.create(**ASK, tools=TOOLS, include=include)
    sealed = first.output[0]
    assert sealed.type == "reasoning"
    assert sealed.encrypted_content
    given: Any = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be short."}]},
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": sealed.id, "summary": [], "encrypted_content": sealed.encrypted_content},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A moment."}]},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city": "Bern"}'},
        {"type": "custom_tool_call", "call_id": "b", "name": "shell", "input": "ls"},
        {"type": "function_call", "call_id": "c", "namespace": "clock", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "21 degrees"},
        {
            "type": "custom_tool_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "x.py"}],
        },
        {"type": "function_call_output", "call_id": "c", "output": "12:00"},
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "of another service"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Well?"}]},
    ]
    client.responses.create(**{**ASK, "input": given}, instructions="You help.", reasoning={"effort": "none"})
    assert prompt(agent) == (
        "system: You help.\n"
        "system: Be short.\n"
        "user: Weather?\n"
        'assistant: <think>Warm.</think>A moment.CALL weather {"city": "Bern"}CALL shell {"input": "ls"}'
        "CALL clock__now {}\n"
        "tool: 21 degrees\n"
        "tool: x.py\n"
        "tool: 12:00\n"
        "user: Well?\n"
        "thinking=False\n"
        "assistant: "
    )


def test_a_response_that_was_cut(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = chatter()
    cut = client.responses.create(**ASK, max_output_tokens=5)
    assert (cut.status, cut.incomplete_details and cut.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    events = streamed(agent, max_output_tokens=5)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-2]["item"]["status"] == "incomplete"


def test_a_failure_ends_a_stream(agent: LiveServer) -> None:
    agent.engine.script = lambda submit: Script(tokens=TOKENIZER.encode("la "), fail_after=3)
    last = streamed(agent)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "n"}]}, "input[0].arguments"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
    ],
)
def test_what_is_refused(agent: LiveServer, fields: dict[str, Any], param: str) -> None:
    response = httpx.post(f"{agent.url}/v1/responses", json={**ASK, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_chosen_tool(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = say(call("clock__now"))
    choice: Any = {"type": "function", "name": "now", "namespace": "clock"}
    response = client.responses.create(**ASK, tools=TOOLS, tool_choice=choice)
    assert shapes(response) == [("clock", "now", {})]
    assert "weather" not in prompt(agent)


def test_an_answer_of_a_schema(agent: LiveServer, client: openai.OpenAI) -> None:
    agent.engine.script = say('{"city": "Bern"}')
    text: Any = {"format": {"type": "json_schema", "name": "x", "schema": WEATHER, "strict": True}}
    assert json.loads(client.responses.create(**ASK, text=text).output_text) == {"city": "Bern"}
    assert "city" in agent.engine.counters.submissions[-1].grammar
    text["format"]["schema"] = {"type": "array", "uniqueItems": True}
    with pytest.raises(openai.BadRequestError, match="uniqueItems") as refused:
        client.responses.create(**ASK, text=text)
    assert (refused.value.param or "").startswith("text.format")


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_call_is_reported(agent: LiveServer, client: openai.OpenAI, stream: bool) -> None:
    agent.engine.script = say("Well.\n<tool_call>\n<function=weather")
    if stream:
        response = streamed(agent, tools=TOOLS)[-1]["response"]
    else:
        response = httpx.post(f"{agent.url}/v1/responses", json={**ASK, "tools": TOOLS}).json()
    (item,) = response["output"]
    assert item["content"][0]["text"] == "Well."
    assert response["broken_tool_calls"] == ["<tool_call>\n<function=weather"]

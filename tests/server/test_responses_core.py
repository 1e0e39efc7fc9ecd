"""The seven core checks of the Responses standard (https://www.openresponses.org/compliance): every response
and event against the standard's required fields, and against the types of OpenAI's package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_model import agent_server, call
from drawn_pictures import PROFILE, data_url
from live import TOKENIZER, LiveServer, say
from openai.types.responses import Response, ResponseStreamEvent
from responses_standard import EVENT, RESPONSE, check_order
from strict_types import events_of, strictly

from flare.testing.scripted_engine import Script

# Fields that the standard demands, and the package's types do not have.
STANDARD = {"store", "presence_penalty", "frequency_penalty"}
IN_EVENTS = {f"response.{name}" for name in STANDARD} | {"name"}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city, e.g. Bern"}},
        "required": ["location"],
    },
}


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server(images=PROFILE) as server:
        yield server


def said(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def whole(agent: LiveServer, given: list[Any], **fields: Any) -> dict[str, Any]:
    """The response to items, checked."""
    sent = {"model": "tiny/chat", "input": given, **fields}
    answer = httpx.post(f"{agent.url}/v1/responses", json=sent, timeout=20)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    RESPONSE.validate_python(body, strict=True)
    strictly(Response, body, STANDARD)
    return body


def events_to(agent: LiveServer, given: list[Any], **fields: Any) -> list[dict[str, Any]]:
    """The events of the response to items, each checked."""
    sent = {"model": "tiny/chat", "input": given, "stream": True, **fields}
    answer = httpx.post(f"{agent.url}/v1/responses", json=sent, timeout=20)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for name, data in events_of(answer.text):
        assert name == data["type"]
        EVENT.validate_python(data, strict=True)
        assert strictly(ResponseStreamEvent, data, IN_EVENTS).type == name  # type: ignore[arg-type]
        events.append(data)
    return events


def streamed(agent: LiveServer, given: list[Any], **fields: Any) -> tuple[list[dict[str, Any]], Any]:
    """The events of the response to items, and the response, all checked."""
    events = events_to(agent, given, **fields)
    return events, check_order(events)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two responses differ in ids and moments only."""
    volatile = ("id", "call_id", "created_at", "completed_at")

    def stable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: stable(each) for key, each in value.items() if key not in volatile}
        return [stable(each) for each in value] if isinstance(value, list) else value

    return bool(stable(one) == stable(other))


def prompt(agent: LiveServer) -> str:
    return TOKENIZER.decode(agent.engine.counters.submissions[-1].prompt, skip_special=False)


def answer_of(response: dict[str, Any]) -> str:
    (item,) = response["output"]
    return str(item["content"][0]["text"])


def test_basic_text_response(agent: LiveServer) -> None:
    agent.engine.script = say("Hello to you")
    response = whole(agent, [said("user", "Say hello in exactly 3 words.")])
    assert answer_of(response) == "Hello to you"
    assert response["status"] == response["output"][0]["status"] == "completed"
    assert response["completed_at"] >= response["created_at"]


@pytest.mark.parametrize("batch", [1, 4, 1000])
def test_streaming_response(agent: LiveServer, batch: int) -> None:
    agent.engine.script = say("<think>Easy.</think>1 2 3 4 5", batch=batch)
    given = [said("user", "Count from 1 to 5.")]
    events, response = streamed(agent, given)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "1 2 3 4 5"
    assert batch > 1 or len(deltas) > 4
    assert same(response, whole(agent, given))


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_prompt(agent: LiveServer, role: str) -> None:
    agent.engine.script = say("Ahoy!")
    given = [said(role, "You are a pirate."), said("user", "Say hello.")]
    assert answer_of(whole(agent, given)) == "Ahoy!"
    assert prompt(agent) == "system: You are a pirate.\nuser: Say hello.\nassistant: "
    response = whole(agent, given[1:], instructions="You are a pirate.")
    assert response["instructions"] == "You are a pirate."
    assert prompt(agent) == "system: You are a pirate.\nuser: Say hello.\nassistant: "


def test_tool_calling(agent: LiveServer) -> None:
    agent.engine.script = say(call("get_weather", location="Bern"))
    response = whole(agent, [said("user", "What's the weather like?")], tools=[WEATHER])
    (item,) = response["output"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "get_weather", "completed")
    assert json.loads(item["arguments"]) == {"location": "Bern"}
    assert response["status"] == "completed"
    assert response["tools"] == [{**WEATHER, "strict": None}]
    bare = {"type": "function", "name": "get_weather"}
    choice = {"type": "function", "name": "get_weather"}
    (repeated,) = whole(agent, [said("user", "Well?")], tools=[bare], tool_choice=choice)["tools"]
    assert repeated == {**bare, "description": None, "parameters": None, "strict": None}


@pytest.mark.parametrize("batch", [1, 5, 1000])
def test_streamed_tool_calling(agent: LiveServer, batch: int) -> None:
    text = call("get_weather", location="Bern") + "\n" + call("get_weather", location="Chur")
    agent.engine.script = say(f"<think>I look.</think>A moment.\n{text}", batch=batch)
    given = [said("user", "What's the weather like?")]
    events, response = streamed(agent, given, tools=[WEATHER])
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    calls = response["output"][2:]
    assert [json.loads(item["arguments"])["location"] for item in calls] == ["Bern", "Chur"]
    assert len({item["call_id"] for item in calls}) == 2
    for kind in ("output_item.added", "function_call_arguments.delta", "function_call_arguments.done"):
        assert f"response.{kind}" in [event["type"] for event in events]
    assert same(response, whole(agent, given, tools=[WEATHER]))


def test_image_input(agent: LiveServer) -> None:
    agent.engine.script = say("A red heart.")
    image = {"type": "input_image", "image_url": data_url(32, 32)}
    given = [said("user", [{"type": "input_text", "text": "What do you see?"}, image])]
    assert answer_of(whole(agent, given)) == "A red heart."
    submission = agent.engine.counters.submissions[-1]
    (sent,) = submission.images
    assert (sent.tokens, sent.grid) == (16, (1, 8, 8))
    assert submission.prompt.count(PROFILE.placeholder) == 16
    events, response = streamed(agent, given)
    assert answer_of(response) == "A red heart."
    assert agent.engine.counters.submissions[-1].images == submission.images
    assert all("input_image" not in json.dumps(event) for event in events)


def test_multi_turn(agent: LiveServer) -> None:
    agent.engine.script = say("Your name is Alice.")
    given = [
        said("user", "My name is Alice."),
        said("assistant", "Hello Alice! How can I help you today?"),
        said("user", "What is my name?"),
    ]
    assert answer_of(whole(agent, given)) == "Your name is Alice."
    first = prompt(agent)
    assert first == (
        "user: My name is Alice.\nassistant: Hello Alice! How can I help you today?\n"
        "user: What is my name?\nassistant: "
    )
    _, response = streamed(agent, given)
    again = [*given, *response["output"], said("user", "Thanks.")]  # items come back as they were
    assert answer_of(whole(agent, again)) == "Your name is Alice."
    assert prompt(agent) == f"{first}Your name is Alice.\nuser: Thanks.\nassistant: "


def test_a_response_that_was_cut(agent: LiveServer) -> None:
    agent.engine.script = say("la la la la la la")
    cut = whole(agent, [said("user", "Sing.")], max_output_tokens=5)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    _, response = streamed(agent, [said("user", "Sing.")], max_output_tokens=5)
    assert (response["status"], response["output"][0]["status"]) == ("incomplete", "incomplete")
    assert same(response, cut)


def test_a_response_that_failed(agent: LiveServer) -> None:
    agent.engine.script = lambda submit: Script(tokens=TOKENIZER.encode("la "), fail_after=3)
    *before, last = events_to(agent, [said("user", "Sing.")])
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["sequence_number"] == len(before)
    assert last["response"]["id"] == before[0]["response"]["id"]
    assert last["response"]["error"]["code"] == "server_error"


def test_what_was_asked_is_repeated(agent: LiveServer) -> None:
    agent.engine.script = say('{"location": "Bern"}')
    asked = {
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.25,
        "max_output_tokens": 99,
        "parallel_tool_calls": False,
        "metadata": {"topic": "weather"},
        "safety_identifier": "someone",
        "prompt_cache_key": "one",
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "place", "schema": WEATHER["parameters"]}},
    }
    response = whole(agent, [said("user", "Where?")], **asked)
    form = {"format": {**asked["text"]["format"], "description": None, "strict": False}}  # type: ignore[index]
    assert {name: response[name] for name in asked} == {**asked, "text": form}
    sampling = agent.engine.counters.submissions[-1].sampling
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.25, -0.25)

"""Answers of a schema are the same in every protocol: reasoned about freely, delivered as the answer, and
refused with the keyword that is not enforced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_model import WEATHER, agent_server
from live import LiveServer, say

USER = [{"role": "user", "content": "Weather in Bern?"}]
ANSWER = '{"city": "Bern"}'


def bodies(schema: Any) -> dict[str, dict[str, Any]]:
    """A request for an answer of `schema`, by path."""
    named = {"name": "weather", "schema": schema, "strict": True}
    return {
        "chat/completions": {
            "messages": USER,
            "response_format": {"type": "json_schema", "json_schema": named},
        },
        "completions": {"prompt": "Bern", "structured_outputs": {"json": schema}},
        "responses": {"input": USER, "text": {"format": {"type": "json_schema", **named}}},
        "messages": {
            "messages": USER,
            "max_tokens": 100,
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
        },
    }


PATHS = tuple(bodies({}))


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


def post(agent: LiveServer, path: str, schema: Any) -> httpx.Response:
    return httpx.post(f"{agent.url}/v1/{path}", json=bodies(schema)[path], timeout=30)


def parts(path: str, body: Any) -> tuple[str, str]:
    """Reasoning and answer."""
    if path == "chat/completions":
        message = body["choices"][0]["message"]
        return message["reasoning_content"], message["content"]
    if path == "responses":
        thought, answer = body["output"]
        assert (thought["type"], answer["type"]) == ("reasoning", "message")
        return thought["content"][0]["text"], answer["content"][0]["text"]
    thought, answer = body["content"]
    assert (thought["type"], answer["type"]) == ("thinking", "text")
    return thought["thinking"], answer["text"]


def test_the_answer_is_no_reasoning_and_the_reasoning_is_there(agent: LiveServer) -> None:
    """vllm#44012, vllm#47027, vllm#50948: JSON came as reasoning, and switched reasoning off."""
    agent.engine.script = say(f"<think>I look.</think>\n\n{ANSWER}")
    grammars = []
    for path in PATHS:
        response = post(agent, path, WEATHER)
        assert response.status_code == 200, response.text
        if path != "completions":
            assert parts(path, response.json()) == ("I look.", ANSWER)
            grammars.append(agent.engine.counters.submissions[-1].grammar)
    assert len(set(grammars)) == 1
    outer, inner = json.loads(grammars[0])["grammars"]
    assert "reasoned" in outer["lark_grammar"]
    assert "city" in json.dumps(inner["json_schema"])


UNSERVED: dict[str, Any] = {
    "not": {"not": {"type": "string"}},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "if": {"if": {"type": "string"}, "then": {"maxLength": 1}},
    "dependentRequired": {"type": "object", "dependentRequired": {"a": ["b"]}},
    "contains": {"type": "array", "contains": {"type": "string"}},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^a"}},
    "unevaluatedProperties": {"type": "object", "unevaluatedProperties": False},
    "format": {"type": "string", "format": "no such format"},
}


@pytest.mark.parametrize("keyword", UNSERVED)
def test_a_keyword_that_is_not_enforced_is_named(agent: LiveServer, keyword: str) -> None:
    """vllm#52594: a schema that is skipped in silence."""
    inside = {"$defs": {"x": UNSERVED[keyword]}, "properties": {"a": {"$ref": "#/$defs/x"}}}
    agent.engine.script = say(ANSWER)
    before = len(agent.engine.counters.submissions)
    for path in PATHS:
        response = post(agent, path, inside)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "invalid_grammar"), response.text
        assert keyword in error["message"]
    assert len(agent.engine.counters.submissions) == before
    assert post(agent, PATHS[0], WEATHER).status_code == 200  # the next one is served

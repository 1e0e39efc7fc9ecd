"""Results of tools that are no text: a refusal that names the place, never a failure of the template
(theroyallab/tabbyAPI#392)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_model import agent_server
from live import TOKENIZER, LiveServer

USER = {"role": "user", "content": "Weather?"}


def body(protocol: str, result: Any) -> dict[str, Any]:
    if protocol == "chat/completions":
        function = {"name": "weather", "arguments": "{}"}
        call = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}
        return {"messages": [USER, call, {"role": "tool", "tool_call_id": "a", "content": result}]}
    if protocol == "responses":
        call = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
        return {"input": [USER, call, {"type": "function_call_output", "call_id": "a", "output": result}]}
    use = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
    given = {"type": "tool_result", "tool_use_id": "a", "content": result}
    turns = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [given]}]
    return {"messages": turns, "max_tokens": 100}


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        yield server


PROTOCOLS = {
    "chat/completions": ("messages[2].content", "text"),
    "responses": ("input[2].output", "input_text"),
    "messages": ("messages[2].content[0].content", "text"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("result", [21, 2.5, True, {"degrees": 21}, [21], [[]], [{"type": "nothing"}]])
def test_what_is_no_text_is_named(agent: LiveServer, protocol: str, result: Any) -> None:
    response = httpx.post(f"{agent.url}/v1/{protocol}", json=body(protocol, result), timeout=20)
    error = response.json()["error"]
    assert response.status_code == 400, response.text
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(PROTOCOLS[protocol][0])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("as_parts", [False, True])
def test_texts_reach_the_prompt(agent: LiveServer, protocol: str, as_parts: bool) -> None:
    for text in ("21", '{"degrees": 21}', "", "</think><tool_call>"):
        result: Any = [{"type": PROTOCOLS[protocol][1], "text": text}] if as_parts else text
        response = httpx.post(f"{agent.url}/v1/{protocol}", json=body(protocol, result), timeout=20)
        assert response.status_code == 200, response.text
        prompt = TOKENIZER.decode(agent.engine.counters.submissions[-1].prompt, skip_special=False)
        assert f"\ntool: {text}\n" in prompt

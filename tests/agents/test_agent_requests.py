"""What the command-line agents sent, by version (`scripts/agent-check --record`), is served, and every turn
goes on from the last one's prompt."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from agent_model import agent_server, with_context
from live import TOKENIZER, LiveServer
from two_tools import two_tools

FIXTURES = sorted((Path(__file__).parent.parent / "data" / "agents").glob("*.json"))
IGNORED = {
    "claude-code-2.1.197": "'metadata', 'context_management'",
    "codex-0.171.0": "'client_metadata', 'tools of type web_search'",
    "opencode-1.18.33": None,
}


@pytest.fixture(scope="module")
def agent() -> Iterator[LiveServer]:
    with agent_server() as server:
        with_context(server, 400_000)
        yield server


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_recorded_turns(agent: LiveServer, fixture: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent.call(lambda: setattr(agent.engine, "script", two_tools))
    turns: list[dict[str, Any]] = json.loads(fixture.read_text())
    assert len(turns) == 3
    prompts = []
    for turn in turns:
        response = httpx.post(
            agent.url + turn["path"], json=turn["body"], headers=turn["headers"], timeout=30
        )
        assert response.status_code == 200, response.text
        assert '"error":{' not in response.text.replace(" ", "")
        prompts.append(TOKENIZER.decode(agent.engine.counters.submissions[-1].prompt, skip_special=False))
    for shorter, longer in itertools.pairwise(prompts):
        assert longer.startswith(re.sub(r"(thinking=\w+\n)?assistant: $", "", shorter))
    ignored = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert all(message.endswith(f"ignored unknown fields: {IGNORED[fixture.stem]}") for message in ignored)


def first_turn(client: str) -> tuple[dict[str, Any], dict[str, str], str]:
    """Body, headers and path of the first request that has tools."""
    turns = json.loads((FIXTURES[0].parent / f"{client}.json").read_text())
    return turns[0]["body"], turns[0]["headers"], turns[0]["path"]


def test_what_claude_code_is_known_to_send_is_in_its_fixture() -> None:
    """vllm#44000, waybarrios/vllm-mlx#277: otherwise the test above says nothing about it."""
    body, headers, path = first_turn("claude-code-2.1.197")
    assert path == "/v1/messages?beta=true"
    assert body["system"][0]["text"].startswith("x-anthropic-billing-header: cc_version=2.1.197.")
    assert len(body["system"]) == 3
    assert [message["role"] for message in body["messages"]] == ["user", "system"]
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high"}
    assert body["context_management"]["edits"][0]["type"] == "clear_thinking_20251015"
    assert (body["max_tokens"], body["stream"], len(body["tools"])) == (32000, True, 24)
    assert any("cache_control" in block for block in body["system"])
    assert len(headers["anthropic-beta"].split(",")) >= 7
    assert "x-claude-code-session-id" in headers


def test_what_codex_is_known_to_send_is_in_its_fixture() -> None:
    """unslothai/unsloth#5141."""
    body, _, path = first_turn("codex-0.171.0")
    assert path == "/v1/responses"
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert "instructions" not in body
    assert body["reasoning"] == {"summary": "auto"}
    assert body["prompt_cache_key"]
    assert [item["role"] for item in body["input"]] == ["developer", "developer", "user", "user"]
    kinds = [tool["type"] for tool in body["tools"]]
    assert (kinds.count("function"), kinds.count("namespace"), kinds.count("web_search")) == (7, 1, 1)
    assert any("strict" in tool for tool in body["tools"])


def test_what_opencode_is_known_to_send_is_in_its_fixture() -> None:
    body, headers, path = first_turn("opencode-1.18.33")
    assert path == "/v1/chat/completions"
    assert body["stream_options"] == {"include_usage": True}
    assert len(body["tools"]) == 10
    assert "x-session-id" in headers


def test_a_request_for_a_title_comes_beside_the_first_one(agent: LiveServer) -> None:
    """OpenCode sends both at once: the small one has no tools, and is answered as soon."""
    agent.call(lambda: setattr(agent.engine, "script", two_tools))
    body, headers, path = first_turn("opencode-1.18.33")
    title = {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
    with ThreadPoolExecutor(2) as pool:
        big, small = pool.map(
            lambda one: httpx.post(agent.url + path, json=one, headers=headers, timeout=30), (body, title)
        )
    assert (big.status_code, small.status_code) == (200, 200)
    assert '"tool_calls"' in big.text
    assert "A title" in "".join(re.findall(r'"content":"([^"]*)"', small.text))
    for response in (big, small):
        assert '"usage":{"prompt_tokens":' in response.text


def test_the_first_look_of_claude_code_is_answered(agent: LiveServer) -> None:
    """`HEAD /`, before anything else."""
    answer = httpx.head(agent.url, timeout=20)
    assert (answer.status_code, answer.content) == (200, b"")


def test_every_client_has_a_fixture() -> None:
    assert [path.stem for path in FIXTURES] == sorted(IGNORED)


def test_a_title_is_asked_for_beside_the_first_turn(agent: LiveServer) -> None:
    """OpenCode does: the same conversation without tools, at the same time."""
    agent.call(lambda: setattr(agent.engine, "script", two_tools))
    (path,) = (path for path in FIXTURES if path.stem.startswith("opencode"))
    turn = json.loads(path.read_text())[0]
    bodies = [turn["body"], {key: value for key, value in turn["body"].items() if key != "tools"}]

    def sent(body: Any) -> str:
        return httpx.post(agent.url + turn["path"], json=body, headers=turn["headers"], timeout=30).text

    with ThreadPoolExecutor(2) as pool:
        first, title = pool.map(sent, bodies)
    assert '"tool_calls":[{' in first
    assert '"finish_reason":"tool_calls"' in first
    content = re.findall(r'"content":"([^"]*)"', title)
    assert "".join(content) == "A title"

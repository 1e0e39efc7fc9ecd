"""What the command-line agents sent, by version (`scripts/agent-check --record`), is served, and every turn
goes on from the last one's prompt."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator
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


def test_every_client_has_a_fixture() -> None:
    assert [path.stem for path in FIXTURES] == sorted(IGNORED)

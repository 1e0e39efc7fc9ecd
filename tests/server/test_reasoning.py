"""Reasoning of chats on the wire."""

from __future__ import annotations

from dataclasses import replace

import openai
import pytest
from live import END, TOKENIZER, LiveServer, say

from flare.contract import Mark, OutputFormat, ReasoningFormat
from flare.testing.scripted_engine import Script
from flare.testing.tiny_text import tiny_assets

FORM = OutputFormat(
    reasoning=ReasoningFormat(start=Mark(text="<think>"), end=Mark(text="</think>")),
)
USER = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_reasoning_comes_beside_the_answer(batch: int) -> None:
    assets = tiny_assets()
    assets = replace(assets, frontend=assets.frontend.model_copy(update={"output": FORM}))
    with (
        LiveServer(assets=assets) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        server.engine.script = say("<think>\nLet me see.\n</think>\n\nHello!", batch=batch)
        whole = client.chat.completions.create(model="tiny/chat", messages=USER)
        message = whole.choices[0].message
        assert (message.content, message.model_extra) == ("Hello!", {"reasoning_content": "Let me see."})

        chunks = list(client.chat.completions.create(model="tiny/chat", messages=USER, stream=True))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        thoughts = [(delta.model_extra or {}).get("reasoning_content") or "" for delta in deltas]
        assert "".join(thoughts) == "Let me see."
        assert "".join(delta.content or "" for delta in deltas) == "Hello!"
        last = max(index for index, thought in enumerate(thoughts) if thought)
        assert not any(delta.content for delta in deltas[:last])

        server.engine.script = lambda submit: Script(tokens=[*TOKENIZER.encode("<think>I wonder"), END])
        cut = client.chat.completions.create(model="tiny/chat", messages=USER).choices[0]
        assert (cut.message.content, cut.message.model_extra) == ("", {"reasoning_content": "I wonder"})

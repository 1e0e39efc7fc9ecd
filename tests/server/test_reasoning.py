"""Reasoning of chats on the wire."""

from __future__ import annotations

from dataclasses import replace

import openai
import pytest
from live import END, TOKENIZER, LiveServer, say

from flare.contract import Mark, OutputFormat, ReasoningFormat
from flare.frontend import FrontendAssets
from flare.testing.scripted_engine import Script
from flare.testing.tiny_text import tiny_assets

FORM = OutputFormat(
    reasoning=ReasoningFormat(start=Mark(text="<think>"), end=Mark(text="</think>")),
)
USER = [{"role": "user", "content": "Hi"}]


def reasoning_assets(template: str | None = None) -> FrontendAssets:
    assets = tiny_assets() if template is None else tiny_assets(template=template)
    return replace(assets, frontend=assets.frontend.model_copy(update={"output": FORM}))


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_reasoning_comes_beside_the_answer(batch: int) -> None:
    with (
        LiveServer(assets=reasoning_assets()) as server,
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


OPENED = (
    "{% for m in messages %}{{ m.role }}: "
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}\n{% endfor %}assistant: <think>"
)


def test_reasoning_in_the_history_does_not_end_that_of_the_answer() -> None:
    """vllm#32490: the template opens the reasoning, and `</think>` of earlier turns is in the prompt."""
    history = [
        *USER,
        {"role": "assistant", "content": "It ends with </think>.", "reasoning_content": "Hm."},
        {"role": "user", "content": "What does </think> mean?"},
    ]
    with (
        LiveServer(assets=reasoning_assets(OPENED)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        server.engine.script = say("They ask.</think>The end.")
        message = client.chat.completions.create(model="tiny/chat", messages=history).choices[0].message
        prompt = TOKENIZER.decode(server.engine.counters.submissions[-1].prompt, skip_special=False)
        assert prompt.count("</think>") == 3
        assert (message.content, message.model_extra) == ("The end.", {"reasoning_content": "They ask."})

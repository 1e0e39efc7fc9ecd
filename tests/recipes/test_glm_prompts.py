"""Prompts of every conversation, with every variable of the template, are those of Transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conversations import CONVERSATIONS
from prompt_pieces import check_answer_goes_on, check_goes_on, pieces

from flare.testing import PromptCheck
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_glm.recipe import RECIPE
from flare_recipe_glm.tiny_text import TOKENS

VARIABLES: dict[str, dict[str, Any]] = {
    "none": {},
    "low": {"reasoning_effort": "low"},
    "high": {"reasoning_effort": "high"},
    "max": {"reasoning_effort": "max"},
    "an effort that it does not know": {"reasoning_effort": "medium"},
    "old reasoning dropped": {"clear_thinking": True},
    "old reasoning kept": {"clear_thinking": False},
    "high, old reasoning dropped": {"reasoning_effort": "high", "clear_thinking": True},
}
OPENED = "<|assistant|><think>"


@pytest.fixture(scope="module")
def check(flare_tiny_checkpoint: TinyCheckpoints) -> PromptCheck:
    return PromptCheck(RECIPE, flare_tiny_checkpoint(RECIPE))


def text(check: PromptCheck, name: str, **variables: Any) -> str:
    conversation = CONVERSATIONS[name]
    prompt = check.prompts.from_messages(conversation.messages, tools=conversation.tools, variables=variables)
    assert prompt.text is not None
    return prompt.text


@pytest.mark.parametrize("variables", VARIABLES)
def test_prompts_are_those_of_transformers(check: PromptCheck, variables: str) -> None:
    """It refuses none of them."""
    assert len(CONVERSATIONS) > 60
    assert all(
        check.compare(name, conversation, VARIABLES[variables])
        for name, conversation in CONVERSATIONS.items()
    )


def test_the_effort_stands_first(check: PromptCheck) -> None:
    for given, written in (("low", "Low"), ("high", "High"), ("max", "Max"), ("xhigh", "Max"), (None, "Max")):
        variables = {} if given is None else {"reasoning_effort": given}
        assert text(check, "tools offered", **variables).startswith(
            f"[gMASK]<sop><|system|>Reasoning Effort: {written}<|system|>\n# Tools"
        )


def test_reasoning_of_earlier_turns_is_kept_or_dropped(check: PromptCheck) -> None:
    name = "reasoning of a running turn"
    for variables in ({}, {"clear_thinking": False}):
        assert "<think>old thoughts</think>older" in text(check, name, **variables)
    cleared = text(check, name, clear_thinking=True)
    assert "<think></think>older" in cleared
    assert "<think>one</think>First Bern.<tool_call>get_weather<arg_key>city</arg_key>" in cleared
    assert "old thoughts" not in cleared


def test_thinking_cannot_be_switched_off(check: PromptCheck) -> None:
    assert text(check, "one turn", enable_thinking=False).endswith(OPENED)


def test_messages_end_where_the_next_begins(check: PromptCheck) -> None:
    found = pieces(check.prompts, CONVERSATIONS["parallel calls and more turns"])
    assert found[0].startswith("[gMASK]<sop><|system|>Reasoning Effort: Max<|system|>\n# Tools")
    assert found[0].endswith("</tool_call><|system|>S")
    assert found[1:] == [
        "<|user|>a",
        f"{OPENED}</think>Both.<tool_call>now</tool_call><tool_call>ping</tool_call>",
        "<|observation|><tool_response>12:34</tool_response>",
        "<tool_response>pong</tool_response>",
        f"{OPENED}</think>Done.",
        "<|user|>again",
        f"{OPENED}</think><tool_call>ping</tool_call>",
        "<|observation|><tool_response>pong</tool_response>",
        f"{OPENED}</think>Done.",
        "<|user|>thanks",
        OPENED,
    ]


@pytest.mark.parametrize("name", sorted(CONVERSATIONS))
def test_a_conversation_that_goes_on_begins_with_its_messages(check: PromptCheck, name: str) -> None:
    check_goes_on(check.prompts, CONVERSATIONS[name])


def test_an_image_stands_between_its_marks(check: PromptCheck) -> None:
    conversation = CONVERSATIONS["two images"]
    prompt = check.prompts.from_messages(conversation.messages)
    assert len(prompt.images) == 2
    for placed in prompt.images:
        end = placed.start + placed.image.features
        assert prompt.tokens[placed.start - 1] == TOKENS["<|begin_of_image|>"]
        assert set(prompt.tokens[placed.start : end]) == {TOKENS["<|image|>"]}
        assert prompt.tokens[end] == TOKENS["<|end_of_image|>"]
        assert placed.image.features == np.prod(placed.image.grid) // 4


def test_reasoning_that_is_sent_back_is_what_the_model_wrote(check: PromptCheck) -> None:
    check_answer_goes_on(check.prompts, "I look.</think>Yes.", content="Yes.", reasoning_content="I look.")

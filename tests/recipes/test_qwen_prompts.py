"""Prompts of every conversation, with every variable of the template, are those of Transformers."""

from __future__ import annotations

from typing import Any

import pytest
from conversations import CONVERSATIONS
from prompt_pieces import check_answer_goes_on, check_goes_on, pieces

from flare.testing import PromptCheck
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE

VARIABLES: dict[str, dict[str, Any]] = {
    "none": {},
    "no thinking": {"enable_thinking": False},
    "thinking": {"enable_thinking": True},
    "old reasoning dropped": {"preserve_thinking": False},
    "old reasoning kept": {"preserve_thinking": True},
    "no thinking, old reasoning dropped": {"enable_thinking": False, "preserve_thinking": False},
    "xhigh": {"reasoning_effort": "xhigh"},
    "medium": {"reasoning_effort": "medium"},
    "low": {"reasoning_effort": "low", "enable_thinking": False},
    "images numbered": {"add_vision_id": True},
}
REFUSED = {"system only", "an image in the system message"}
THOUGHT = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def called(name: str) -> str:
    return f"<tool_call>\n<function={name}>\n</function>\n</tool_call>"


@pytest.fixture(scope="module")
def check(flare_tiny_checkpoint: TinyCheckpoints) -> PromptCheck:
    return PromptCheck(RECIPE, flare_tiny_checkpoint(RECIPE))


@pytest.mark.parametrize("variables", VARIABLES)
def test_prompts_are_those_of_transformers(check: PromptCheck, variables: str) -> None:
    refused = {
        name
        for name, conversation in CONVERSATIONS.items()
        if not check.compare(name, conversation, VARIABLES[variables])
    }
    assert refused == REFUSED


UNCHANGED = {"none", "thinking", "old reasoning kept", "xhigh"}


@pytest.mark.parametrize("variables", sorted(set(VARIABLES) - UNCHANGED))
def test_a_variable_changes_prompts(check: PromptCheck, variables: str) -> None:
    def text(name: str, **given: Any) -> str | None:
        conversation = CONVERSATIONS[name]
        return check.prompts.from_messages(
            conversation.messages, tools=conversation.tools, variables=given
        ).text

    name = "images of several turns"
    assert text(name, **VARIABLES[variables]) != text(name)


def test_an_unknown_effort_is_refused_as_by_transformers(check: PromptCheck) -> None:
    assert not check.compare("effort", CONVERSATIONS["one turn"], {"reasoning_effort": "high"})


def test_messages_end_where_the_next_begins(check: PromptCheck) -> None:
    found = pieces(check.prompts, CONVERSATIONS["parallel calls and more turns"])
    assert found[0].startswith("<|im_start|>system\n# Tools")
    assert found[0].endswith("</tool_call>\n\nThink hard.\n\nS<|im_end|>\n")
    assert found[1:] == [
        "<|im_start|>user\na<|im_end|>\n",
        f"{THOUGHT}Both.\n\n{called('now')}\n{called('ping')}<|im_end|>\n",
        "<|im_start|>user\n<tool_response>\n12:34\n</tool_response>",
        "\n<tool_response>\npong\n</tool_response><|im_end|>\n",
        f"{THOUGHT}Done.<|im_end|>\n",
        "<|im_start|>user\nagain<|im_end|>\n",
        f"{THOUGHT}{called('ping')}<|im_end|>\n",
        "<|im_start|>user\n<tool_response>\npong\n</tool_response><|im_end|>\n",
        f"{THOUGHT}Done.<|im_end|>\n",
        "<|im_start|>user\nthanks<|im_end|>\n",
        "<|im_start|>assistant\n<think>\n",
    ]


@pytest.mark.parametrize("name", sorted(set(CONVERSATIONS) - REFUSED))
def test_a_conversation_that_goes_on_begins_with_its_messages(check: PromptCheck, name: str) -> None:
    check_goes_on(check.prompts, CONVERSATIONS[name])


def test_reasoning_that_is_sent_back_is_what_the_model_wrote(check: PromptCheck) -> None:
    """QwenLM/Qwen3.8#131, nibor1896/Crow#60: what is left of it decides how much has to be computed again."""
    written = "I look.\n</think>\n\nYes."
    check_answer_goes_on(check.prompts, written, content="Yes.", reasoning_content="I look.")

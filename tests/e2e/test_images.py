"""Conversations with images through HTTP: what a turn costs, and what it must never find in the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from flare_run import FlareRun
from qwen_pictures import message, picture, prompts

from flare.testing import TINY_CAPACITIES, round_trip
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE

# The thought stands where the prompt of the first turn ends, so that all of it is a prefix of the second.
ANSWER = {"role": "assistant", "reasoning_content": "whiskers", "content": "a cat"}
CAT, DOG, SHIP = (picture(100, 90, seed) for seed in range(3))


@pytest.fixture(scope="module")
def checkpoint(flare_tiny_checkpoint: TinyCheckpoints) -> Path:
    return flare_tiny_checkpoint(RECIPE)


@pytest.fixture(scope="module")
def image_client(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    capacities = dataclasses.replace(TINY_CAPACITIES, concurrency=2, snapshot_rows=32)
    core = round_trip(
        RECIPE, checkpoint, tmp_path_factory.mktemp("images") / "core.safetensors", capacities=capacities
    )
    with FlareRun(core) as server, server.client() as client:
        yield client


def ask(
    client: openai.OpenAI, messages: Sequence[Mapping[str, Any]], salt: str, tokens: int = 4
) -> tuple[str, int, int]:
    """The answer, the tokens of the prompt, and those of them that were cached."""
    response = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=messages,  # type: ignore[arg-type]
        max_tokens=tokens,
        temperature=0.05,
        seed=7,
        extra_body={"cache_salt": salt, "ignore_eos": True, "top_k": 1},
    )
    assert response.usage is not None
    details = response.usage.prompt_tokens_details
    answer = response.choices[0].message.content or ""
    return answer, response.usage.prompt_tokens, 0 if details is None else details.cached_tokens or 0


def test_a_repeated_prompt_with_an_image_costs_nothing(image_client: openai.OpenAI, checkpoint: Path) -> None:
    messages = [message("what is ", CAT, "?")]
    first, count, cached = ask(image_client, messages, "repeat")
    assert cached == 0
    assert count == len(prompts(checkpoint).from_messages(messages).tokens)
    assert ask(image_client, messages, "repeat") == (first, count, count)


def test_a_second_turn_costs_its_suffix(image_client: openai.OpenAI) -> None:
    messages = [message("what is ", CAT, "?")]
    _, kept, _ = ask(image_client, messages, "turns")
    more = [*messages, ANSWER, message("sure?")]
    reused, _, cached = ask(image_client, more, "turns")
    assert cached >= kept
    fresh, _, nothing = ask(image_client, more, "turns, computed whole")
    assert nothing == 0
    assert reused == fresh


def test_the_same_text_with_another_image_never_hits(image_client: openai.OpenAI, checkpoint: Path) -> None:
    messages = [message("what is ", CAT, "?")]
    ask(image_client, messages, "other")
    before = prompts(checkpoint).from_messages(messages).images[0].start
    other, _, cached = ask(image_client, [message("what is ", DOG, "?")], "other")
    assert cached <= before
    assert other == ask(image_client, [message("what is ", DOG, "?")], "other, alone")[0]


def test_an_appended_image_keeps_the_earlier_prefix(image_client: openai.OpenAI, checkpoint: Path) -> None:
    messages = [message("what is ", CAT, "?")]
    _, kept, _ = ask(image_client, messages, "append")
    more = [*messages, ANSWER, message("and ", SHIP, "?")]
    reused, _, cached = ask(image_client, more, "append")
    assert kept <= cached < prompts(checkpoint).from_messages(more).images[1].start
    assert reused == ask(image_client, more, "append, computed whole")[0]

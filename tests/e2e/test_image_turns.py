"""Conversations with images through HTTP: what a turn costs, and what it must never find in the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import openai
import pytest
from flare_run import FlareRun
from image_prompts import frontend_of, message

from flare.frontend.prompts import Prompt
from flare.recipes import Recipe
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_glm.recipe import RECIPE as GLM
from flare_recipe_qwen.recipe import RECIPE as QWEN

RECIPES: dict[str, Recipe] = {"qwen": QWEN, "glm": GLM}
Messages = Sequence[Mapping[str, Any]]

CAT, DOG, SHIP = (picture(100, 90, seed) for seed in range(3))
ANSWER = {"role": "assistant", "content": "a cat"}
THOUGHT = {"role": "assistant", "reasoning_content": "whiskers", "content": "a cat"}
BOUND = 1e-3  # nats in FP32, between a prompt computed at once and one continued


@dataclasses.dataclass
class Answer:
    """What was drawn with its log-probabilities, the tokens of the prompt, and those found in the cache."""

    tokens: list[str]
    logprobs: list[float]
    count: int
    cached: int

    def is_that_of(self, other: Answer) -> bool:
        near = all(abs(a - b) < BOUND for a, b in zip(self.logprobs, other.logprobs, strict=True))
        return near and (self.tokens, self.count) == (other.tokens, other.count)


@pytest.fixture(scope="module", params=RECIPES)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def image_client(model: str, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with FlareRun(request.getfixturevalue(f"{model}_core")) as server, server.client() as client:
        yield client


def ask(client: openai.OpenAI, messages: Messages, salt: str) -> Answer:
    response = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=messages,  # type: ignore[arg-type]
        max_tokens=4,
        temperature=0.01,
        seed=7,
        logprobs=True,
        extra_body={"cache_salt": salt, "ignore_eos": True},
    )
    assert response.usage is not None
    assert response.choices[0].logprobs is not None
    drawn = response.choices[0].logprobs.content or []
    details = response.usage.prompt_tokens_details
    return Answer(
        tokens=[one.token for one in drawn],
        logprobs=[one.logprob for one in drawn],
        count=response.usage.prompt_tokens,
        cached=0 if details is None else details.cached_tokens or 0,
    )


@pytest.fixture(scope="module")
def prompt(model: str, flare_tiny_checkpoint: TinyCheckpoints) -> Any:
    recipe = RECIPES[model]
    frontend = frontend_of(recipe, flare_tiny_checkpoint(recipe))

    def of(messages: Messages) -> Prompt:
        return frontend.from_messages(messages)

    return of


def test_a_repeated_prompt_with_an_image_costs_nothing(image_client: openai.OpenAI, prompt: Any) -> None:
    messages = [message("what is ", CAT, "?")]
    first = ask(image_client, messages, "repeat")
    assert (first.cached, first.count) == (0, len(prompt(messages).tokens))
    again = ask(image_client, messages, "repeat")
    assert again == dataclasses.replace(first, cached=first.count)


@pytest.mark.parametrize("answer", [ANSWER, THOUGHT], ids=["answer", "thought"])
def test_a_second_turn_costs_its_suffix(
    image_client: openai.OpenAI, prompt: Any, answer: dict[str, str]
) -> None:
    messages = [message("what is ", CAT, "?")]
    first = ask(image_client, messages, f"turns {answer}")
    more = [*messages, answer, message("sure?")]
    second = ask(image_client, more, f"turns {answer}")
    # Without the thought that its prompt began, the first turn's text goes on behind the question.
    assert second.cached >= (first.count if answer is THOUGHT else prompt(messages).endpoints[-1])
    whole = ask(image_client, more, f"turns {answer}, computed whole")
    assert whole.cached == 0
    assert second.is_that_of(whole)


def test_the_same_text_with_another_image_never_hits(image_client: openai.OpenAI, prompt: Any) -> None:
    cat, dog = [message("what is ", CAT, "?")], [message("what is ", DOG, "?")]
    first = ask(image_client, cat, "other")
    other = ask(image_client, dog, "other")
    assert other.cached <= prompt(cat).images[0].start
    assert other.is_that_of(ask(image_client, dog, "other, computed whole"))
    assert not other.is_that_of(first)


@pytest.mark.parametrize("answer", [ANSWER, THOUGHT], ids=["answer", "thought"])
def test_an_appended_image_keeps_the_earlier_prefix(
    image_client: openai.OpenAI, prompt: Any, answer: dict[str, str]
) -> None:
    messages = [message("what is ", CAT, "?")]
    ask(image_client, messages, f"append {answer}")
    more = [*messages, answer, message("and ", SHIP, "?")]
    second = ask(image_client, more, f"append {answer}")
    assert prompt(messages).endpoints[-1] <= second.cached <= prompt(more).images[1].start
    assert second.is_that_of(ask(image_client, more, f"append {answer}, computed whole"))
    other = ask(image_client, [*more[:-1], message("and ", DOG, "?")], f"append {answer}")
    assert other.cached <= prompt(more).images[1].start
    assert not other.is_that_of(second)

"""Hybrid models, from their checkpoints through `flare prepare` and `flare run` to a chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from flare_run import FlareRun, run_to_end
from image_prompts import frontend_of

from flare.frontend import Prompts
from flare.frontend.prompts import Prompt
from flare.recipes import Recipe
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_glm.recipe import RECIPE as GLM
from flare_recipe_qwen.recipe import RECIPE as QWEN

SAMPLED = {"temperature": 0.01, "seed": 5, "extra_body": {"ignore_eos": True}}
DRAFTING = "(multi-token prediction is not prepared)"
MODELS: dict[str, tuple[Recipe, Sequence[str]]] = {
    "qwen3.8-flash": (QWEN, (f"1 tensors {DRAFTING}", "3 tensors (constants of the hash are computed)")),
    "glm-5.3-flash": (GLM, (f"3 tensors {DRAFTING}",)),
}
"""By the names that users type: what prepares them, and what preparation says it leaves out."""


@dataclass(frozen=True)
class Hybrid:
    """A model that is served, and the prompts of its frontend."""

    model: str
    client: openai.OpenAI
    prompts: Prompts


@pytest.fixture(scope="module", params=MODELS)
def hybrid(
    request: pytest.FixtureRequest,
    flare_tiny_checkpoint: TinyCheckpoints,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Hybrid]:
    name: str = request.param
    recipe, left_out = MODELS[name]
    checkpoint = flare_tiny_checkpoint(recipe)
    core = tmp_path_factory.mktemp("hybrid") / f"{name}.core.safetensors"
    sizes = ("--context", "512", "--prefill-chunk-size", "64", "--page-tokens", "16", "--concurrency", "2")
    source = ("--checkpoint", str(checkpoint), "--dtype", "float32", "--image-patches", "256")
    done = run_to_end("prepare", name, *source, *sizes, "-o", core, seconds=240)
    assert done.returncode == 0, done.stderr
    for line in left_out:
        assert f"Left out: {line}" in done.stderr
    with FlareRun(core, "--snapshot-rows", "256") as server, server.client() as client:
        yield Hybrid(name, client, frontend_of(recipe, checkpoint))


def ask(hybrid: Hybrid, prompt: list[int], salt: str) -> tuple[list[str], int]:
    """The tokens drawn behind `prompt`, and how many of it were found in the cache."""
    options: dict[str, Any] = {**SAMPLED, "extra_body": {"ignore_eos": True, "cache_salt": salt}}
    response = hybrid.client.completions.create(
        model=hybrid.model, prompt=prompt, max_tokens=6, logprobs=0, **options
    )
    assert response.usage is not None
    details = response.usage.prompt_tokens_details
    logprobs = response.choices[0].logprobs
    assert logprobs is not None
    return logprobs.tokens or [], (details.cached_tokens or 0) if details else 0


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 50, 70])
def test_a_longer_prompt_costs_its_suffix_and_draws_the_same(hybrid: Hybrid, length: int) -> None:
    prompt = [30 + (7 * place) % 250 for place in range(length + 9)]
    assert ask(hybrid, prompt[:length], f"reused {length}")[1] == 0
    reused, cached = ask(hybrid, prompt, f"reused {length}")
    assert cached == length
    assert ask(hybrid, prompt, f"whole {length}") == (reused, 0)
    assert ask(hybrid, prompt, f"reused {length}") == (reused, length + 9)


def test_a_turn_and_a_branch_of_a_chat_cost_their_suffixes(hybrid: Hybrid) -> None:
    question = {"role": "user", "content": "What is the capital of France?"}

    def turn(messages: list[Any], count: int) -> tuple[str, int]:
        answer = hybrid.client.chat.completions.create(
            model=hybrid.model, messages=messages, max_tokens=count, **SAMPLED
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        cached = answer.usage.prompt_tokens_details.cached_tokens
        return answer.choices[0].message.content or "none", cached or 0

    said, cached = turn([question], 12)
    assert cached == 0
    answer = {"role": "assistant", "content": f"{said}: a city of some size, on a river called the Seine"}
    turns = [[question]]
    turns += [
        [question, answer, {"role": "user", "content": f"And of {where}?"}] for where in ("Italy", "Spain")
    ]
    prompts = [hybrid.prompts.from_messages(messages) for messages in turns]
    assert turn(turns[1], 4)[1] == shared(prompts[:1], prompts[1]) > 30
    assert turn(turns[2], 4)[1] == shared(prompts[:2], prompts[2]) > shared(prompts[:1], prompts[2])


def shared(earlier: Sequence[Prompt], prompt: Prompt) -> int:
    """Where the last message, or prompt, ends that earlier prompts have in common with this one."""
    return max(
        end
        for other in earlier
        for end in (*other.endpoints, len(other.tokens))
        if other.tokens[:end] == prompt.tokens[:end]
    )


@pytest.mark.parametrize(
    ("hybrid", "variables", "more"),
    [
        # A closed thought is a newline, its mark, and two more newlines; the demand to think hard is missing.
        ("qwen3.8-flash", {"enable_thinking": False}, -17),
        ("glm-5.3-flash", {"reasoning_effort": "high"}, 1),  # for Max
    ],
    indirect=["hybrid"],
)
def test_variables_of_the_template_come_with_the_request(
    hybrid: Hybrid, variables: dict[str, Any], more: int
) -> None:
    said = []
    for given in ({}, variables):
        answer = hybrid.client.chat.completions.create(
            model=hybrid.model,
            messages=[{"role": "user", "content": "1+1?"}],
            max_tokens=8,
            seed=1,
            extra_body={"ignore_eos": True, "chat_template_kwargs": given},
        )
        assert answer.usage is not None
        said.append((answer.usage.prompt_tokens, answer.choices[0].message))
    assert said[1][0] == said[0][0] + more
    thoughts = [getattr(message, "reasoning_content", None) for _, message in said]
    assert thoughts[0]
    quiet = variables.get("enable_thinking") is False
    assert bool(said[1][1].content) == quiet
    assert bool(thoughts[1]) != quiet

"""A hybrid model with a table, from its checkpoint through `flare prepare` and `flare run` to a chat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from flare_run import FlareRun, run_to_end
from tokenizers import Tokenizer

from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE

SAMPLED = {"temperature": 0.01, "seed": 5, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def checkpoint(flare_tiny_checkpoint: TinyCheckpoints) -> Path:
    return flare_tiny_checkpoint(RECIPE)


@pytest.fixture(scope="module")
def hybrid(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    core = tmp_path_factory.mktemp("hybrid") / "qwen3.8-flash.core.safetensors"
    sizes = ("--context", "512", "--prefill-chunk-size", "64", "--page-tokens", "16", "--concurrency", "2")
    source = ("--checkpoint", str(checkpoint), "--dtype", "float32")
    done = run_to_end("prepare", "qwen3.8-flash", *source, *sizes, "-o", core, seconds=240)
    assert done.returncode == 0, done.stderr
    assert "Left out: 1 tensors (multi-token prediction is not prepared)" in done.stderr
    assert "Left out: 3 tensors (constants of the hash are computed)" in done.stderr
    with FlareRun(core, "--snapshot-rows", "256") as server, server.client() as client:
        yield client


def ask(client: openai.OpenAI, prompt: list[int], salt: str) -> tuple[list[str], int]:
    """The tokens drawn behind `prompt`, and how many of it were found in the cache."""
    options: dict[str, Any] = {**SAMPLED, "extra_body": {"ignore_eos": True, "cache_salt": salt}}
    response = client.completions.create(
        model="qwen3.8-flash", prompt=prompt, max_tokens=6, logprobs=0, **options
    )
    assert response.usage is not None
    details = response.usage.prompt_tokens_details
    logprobs = response.choices[0].logprobs
    assert logprobs is not None
    return logprobs.tokens or [], (details.cached_tokens or 0) if details else 0


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 50, 70])
def test_a_longer_prompt_costs_its_suffix_and_draws_the_same(hybrid: openai.OpenAI, length: int) -> None:
    prompt = [13 + (7 * place) % 250 for place in range(length + 9)]
    assert ask(hybrid, prompt[:length], f"reused {length}")[1] == 0
    reused, cached = ask(hybrid, prompt, f"reused {length}")
    assert cached == length
    assert ask(hybrid, prompt, f"whole {length}") == (reused, 0)
    assert ask(hybrid, prompt, f"reused {length}") == (reused, length + 9)


def test_the_second_turn_of_a_chat_costs_its_suffix(hybrid: openai.OpenAI, checkpoint: Path) -> None:
    question = {"role": "user", "content": "What is the capital of France?"}
    first = hybrid.chat.completions.create(
        model="qwen3.8-flash", messages=[question], max_tokens=12, **SAMPLED
    )
    answer = {"role": "assistant", "content": first.choices[0].message.content or "none"}
    second = hybrid.chat.completions.create(
        model="qwen3.8-flash",
        messages=[question, answer, {"role": "user", "content": "And of Italy?"}],
        max_tokens=4,
        **SAMPLED,
    )
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    # The answer comes back without the reasoning that its prompt began: texts branch behind the question.
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    common = tokenizer.encode(f"<|im_start|>user\n{question['content']}<|im_end|>\n").ids
    assert second.usage.prompt_tokens_details.cached_tokens == len(common)
    third = hybrid.chat.completions.create(
        model="qwen3.8-flash",
        messages=[question, answer, {"role": "user", "content": "And of Spain?"}],
        max_tokens=4,
        **SAMPLED,
    )
    assert third.usage is not None
    assert third.usage.prompt_tokens_details is not None
    told = tokenizer.encode(f"<|im_start|>assistant\n{answer['content']}<|im_end|>\n").ids
    assert third.usage.prompt_tokens_details.cached_tokens == len(common) + len(told)


def test_thinking_is_switched_by_the_request(hybrid: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "1+1?"}]
    said = {}
    for enabled in (True, False):
        options = {"ignore_eos": True, "chat_template_kwargs": {"enable_thinking": enabled}}
        answer = hybrid.chat.completions.create(
            model="qwen3.8-flash", messages=question, max_tokens=8, seed=1, extra_body=options
        )
        assert answer.usage is not None
        said[enabled] = answer.usage.prompt_tokens, answer.choices[0].message
    # A closed thought is a newline, its mark, and two more newlines.
    assert said[False][0] == said[True][0] + 4
    assert said[True][1].reasoning_content
    assert said[False][1].content

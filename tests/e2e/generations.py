"""Requests through the client, reduced to what must be equal."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import openai


@dataclass(frozen=True)
class Drawn:
    """The tokens of one output, as text labels, with the model's log-probability of each."""

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    finish_reason: str


def draw(client: openai.OpenAI, prompt: str, seed: int, length: int = 40, **options: Any) -> Drawn:
    """One completion of exactly `length` tokens."""
    body = {"ignore_eos": True, **options.pop("extra_body", {})}
    response = client.completions.create(
        model=client.models.list().data[0].id,
        prompt=prompt,
        seed=seed,
        max_tokens=length,
        logprobs=0,
        extra_body=body,
        **options,
    )
    choice = response.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs is not None
    logprobs = tuple(value for value in choice.logprobs.token_logprobs if value is not None)
    return Drawn(tuple(choice.logprobs.tokens), logprobs, choice.finish_reason)


def draw_together(client: openai.OpenAI, requests: Sequence[tuple[str, int, int]]) -> list[Drawn]:
    """`(prompt, seed, length)` each, all sent at once, results in order."""
    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(lambda request: draw(client, *request), requests))

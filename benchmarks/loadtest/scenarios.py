"""What is measured: the first token of a fresh prompt, and decoding of some streams at once.

Results are dictionaries ready for JSON: times in milliseconds, rates in tokens per second.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import httpx

from loadtest.completion import Completion, stream_completion
from loadtest.errors import BenchmarkError
from loadtest.prompts import PromptWriter, fit_words, within
from loadtest.timing import common_window, gaps, percentile, tokens_per_second

# The first text is timed; a few tokens make sure that there is one, whatever the first token is.
FIRST_TOKENS = 4
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Target:
    """A server, the model it is asked for, and the sampling fields of every request."""

    client: httpx.AsyncClient
    model: str
    sampling: dict[str, float]
    writer: PromptWriter

    async def complete(self, prompt: str, tokens: int) -> Completion:
        """Stream `tokens` tokens."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, **self.sampling}
        return await stream_completion(self.client, body)

    async def fit(self, tokens: int) -> int:
        """Words of a prompt of `tokens` tokens; the requests also warm the server up."""

        async def count(prompt: str) -> int:
            return (await self.complete(prompt, FIRST_TOKENS)).prompt_tokens

        return await fit_words(tokens, count, self.writer)


async def cold(target: Target, *, prompt_tokens: int, repeats: int) -> dict[str, Any]:
    """First-token latency of prompts that the server has not seen, one at a time.

    Raises: BenchmarkError when a prompt is not as long as wanted or the server says that it knew it.
    """
    words = await target.fit(prompt_tokens)
    completions = [await target.complete(target.writer.write(words), FIRST_TOKENS) for _ in range(repeats)]
    for completion in completions:
        if not within(completion.prompt_tokens, prompt_tokens):
            raise BenchmarkError(f"a prompt of {words} words has {completion.prompt_tokens} tokens")
        if completion.cached_tokens:
            raise BenchmarkError(f"{completion.cached_tokens} tokens of a fresh prompt were cached")
    milliseconds = [1000 * completion.first_token_seconds for completion in completions]
    return {
        "prompt_tokens": [completion.prompt_tokens for completion in completions],
        "first_token_ms": summary(milliseconds),
        "all_first_token_ms": milliseconds,
    }


async def decode(
    target: Target, *, concurrency: int, prompt_tokens: int, output_tokens: int, repeats: int
) -> dict[str, Any]:
    """Decoding speed of `concurrency` streams that start together; the median run's rate is the result.

    Raises: BenchmarkError when the streams do not overlap.
    """
    words = await target.fit(prompt_tokens)

    async def streams(tokens: int) -> list[Completion]:
        prompts = [target.writer.write(words) for _ in range(concurrency)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(target.complete(prompt, tokens)) for prompt in prompts]
        return [task.result() for task in tasks]

    await streams(WARM_UP_TOKENS)
    runs = [await streams(output_tokens) for _ in range(repeats)]
    rates = [tokens_per_second(run) for run in runs]
    completions = [completion for run in runs for completion in run]
    pauses = [_pauses(completion, common_window(run)) for run in runs for completion in run]
    return {
        "tokens_per_second": statistics.median(rates),
        "all_tokens_per_second": rates,
        "tokens_per_event": statistics.fmean(completion.tokens_per_event for completion in completions),
        "inter_token_ms": summary(list(chain.from_iterable(pauses))),
        "streams": list(map(_stream, completions, pauses)),
    }


def _pauses(completion: Completion, window: tuple[float, float]) -> list[float]:
    return [1000 * gap for gap in gaps(completion, window)]


def _stream(completion: Completion, pauses: Sequence[float]) -> dict[str, Any]:
    return {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "first_token_ms": 1000 * completion.first_token_seconds,
        "inter_token_ms": summary(pauses),
    }


def summary(values: Sequence[float]) -> dict[str, float]:
    """Smallest value, median and 99th percentile."""
    return {"min": min(values), "p50": percentile(values, 50), "p99": percentile(values, 99)}

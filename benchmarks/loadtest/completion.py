"""One streamed text completion, with the time at which each piece arrived."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx

from loadtest.errors import BenchmarkError
from loadtest.sse import EventParser


@dataclass(frozen=True)
class Completion:
    """`sent` and `times` are seconds of one monotonic clock; `times` has an entry per event with text.

    Token counts are the server's `usage`; `cached_tokens` is None where it does not say.
    """

    sent: float
    times: tuple[float, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None

    @property
    def first_token_seconds(self) -> float:
        """From the request to the first text."""
        return self.times[0] - self.sent

    @property
    def tokens_per_event(self) -> float:
        """1 when the server sends every token by itself; more when it joins several."""
        return self.completion_tokens / len(self.times)


def read_completion(sent: float, chunks: Iterable[tuple[float, bytes]]) -> Completion:
    """The completion in `chunks` of an event stream, each with its time of arrival.

    Raises: BenchmarkError for an error event, a stream cut short, one without text or without usage.
    """
    parser = EventParser()
    times: list[float] = []
    usage: dict[str, Any] | None = None
    done = False
    for arrived, chunk in chunks:
        for data in parser.feed(chunk):
            if data == b"[DONE]":
                done = True
                continue
            event = json.loads(data)
            if "error" in event:
                raise BenchmarkError(f"the server sent an error: {event['error']}")
            usage = event.get("usage") or usage
            if any(choice.get("text") for choice in event["choices"]):
                times.append(arrived)
    if not done:
        raise BenchmarkError("the stream ended without [DONE]")
    if usage is None:
        raise BenchmarkError("the server sent no usage: stream_options.include_usage is needed")
    if not times:
        raise BenchmarkError("the server sent no text")
    details = usage.get("prompt_tokens_details") or {}
    return Completion(
        sent=sent,
        times=tuple(times),
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        cached_tokens=details.get("cached_tokens"),
    )


async def stream_completion(client: httpx.AsyncClient, body: dict[str, Any]) -> Completion:
    """Send one streaming request to `/v1/completions` and read it to its end.

    `ignore_eos` is asked for, so every one of `max_tokens` tokens must come. Raises: BenchmarkError.
    """
    body = {**body, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    chunks: list[tuple[float, bytes]] = []
    sent = time.perf_counter()
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            text = (await response.aread()).decode(errors="replace")
            raise BenchmarkError(f"the server answered {response.status_code}: {text}")
        # Parsed after the stream has ended: client and server share the cores.
        async for chunk in response.aiter_raw():
            chunks.append((time.perf_counter(), chunk))
    completion = read_completion(sent, chunks)
    if completion.completion_tokens != body["max_tokens"]:
        raise BenchmarkError(
            f"asked for {body['max_tokens']} tokens, the server drew {completion.completion_tokens}"
        )
    return completion

"""One streamed answer, with the time at which each piece arrived."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from flare.bench.errors import BenchmarkError
from flare.bench.sse import EventParser

# Where servers put text that a model wrote: the answer, and what reasoning models write before it.
_DELTA_TEXTS = ("content", "reasoning_content", "reasoning")
_SHOWN = 200  # characters of a server's text in an error


@dataclass(frozen=True)
class Completion:
    """A complete answer. `sent` and `times` are seconds of one monotonic clock; `times` has an entry per
    event with text and `counts` the tokens of each. Token counts are the server's `usage`; `cached_tokens` is
    None where it does not say."""

    sent: float
    times: tuple[float, ...]
    counts: tuple[float, ...]
    text: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None

    @property
    def first_token_ms(self) -> float:
        """From the request to the first text."""
        return 1000 * (self.times[0] - self.sent)

    @property
    def tokens_per_event(self) -> float:
        """1 when the server sends every token by itself; more when it joins several."""
        return self.completion_tokens / len(self.times)


@dataclass
class Events:
    """What a stream held so far. `totals` are the completion tokens reported with each text, if they were."""

    times: list[float] = field(default_factory=list)
    totals: list[int | None] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    done: bool = False

    def completion(self, sent: float) -> Completion:
        """The answer, when it is complete. Raises: BenchmarkError for a stream that was cut short, or that
        has no text or no usage."""
        if not self.done:
            raise BenchmarkError("the stream ended without [DONE]")
        if self.usage is None:
            raise BenchmarkError("the server sent no usage: stream_options.include_usage is needed")
        if not self.times:
            raise BenchmarkError("the server sent no text")
        try:
            drawn = int(self.usage["completion_tokens"])
            details = self.usage.get("prompt_tokens_details") or {}
            return Completion(
                sent=sent,
                times=tuple(self.times),
                counts=self._counts(drawn),
                text="".join(self.texts),
                prompt_tokens=int(self.usage["prompt_tokens"]),
                completion_tokens=drawn,
                cached_tokens=details.get("cached_tokens"),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise BenchmarkError(f"the server's usage is not OpenAI's: {self.usage!r}") from error

    def _counts(self, drawn: int) -> tuple[float, ...]:
        """Tokens per event: what the usage in each event says, else every event has the mean."""
        totals = [total for total in self.totals if total is not None]
        if len(totals) == len(self.times):
            return tuple(float(later - earlier) for earlier, later in pairwise((0, *totals)))
        return (drawn / len(self.times),) * len(self.times)


def read_events(chunks: Iterable[tuple[float, bytes]]) -> Events:
    """Events in `chunks` of an event stream, each with its time of arrival. Raises: BenchmarkError for an
    error event and for one that is not OpenAI's."""
    parser = EventParser()
    events = Events()
    for arrived, chunk in chunks:
        for data in parser.feed(chunk):
            if data == b"[DONE]":
                events.done = True
            else:
                _take(data, arrived, events)
    return events


def _take(data: bytes, arrived: float, events: Events) -> None:
    shown = data[:_SHOWN].decode(errors="replace")
    try:
        event = json.loads(data)
        if "error" in event:
            raise BenchmarkError(f"the server sent an error: {event['error']}")
        text = "".join(map(_text, event["choices"]))
        usage = event.get("usage")
        total = None if usage is None else usage["completion_tokens"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, BenchmarkError):
            raise
        raise BenchmarkError(f"the stream has an event that is not OpenAI's: {shown!r}") from error
    events.usage = usage or events.usage
    if text:
        events.times.append(arrived)
        events.texts.append(text)
        events.totals.append(total)


def _text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta")
    if delta is None:
        return choice.get("text") or ""
    return "".join(delta.get(name) or "" for name in _DELTA_TEXTS)


class Stream:
    """One request in flight: `chunks` grow while `run` reads. They are parsed after the stream has ended,
    because client and server may share the cores."""

    def __init__(self, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
        self._client = client
        self._path = path
        self._body = body
        self._wanted = 0
        self._reached = asyncio.Event()
        self.sent = 0.0
        self.chunks: list[tuple[float, bytes]] = []

    async def run(self) -> Completion:
        """Send the request and read it to its end. Raises: BenchmarkError, also when it breaks."""
        self.sent = time.perf_counter()
        try:
            async with self._client.stream("POST", self._path, json=self._body) as response:
                if response.status_code != 200:
                    text = (await response.aread()).decode(errors="replace")
                    raise BenchmarkError(f"the server answered {response.status_code}: {text[:_SHOWN]}")
                async for chunk in response.aiter_raw():
                    self.take(chunk)
        except httpx.TransportError as error:
            kind = type(error).__name__
            raise BenchmarkError(f"{kind}: {error}" if str(error) else kind) from error
        return read_events(self.chunks).completion(self.sent)

    def take(self, chunk: bytes) -> None:
        """`chunk` has arrived now."""
        self.chunks.append((time.perf_counter(), chunk))
        if len(self.chunks) == self._wanted:
            self._reached.set()

    def arrivals(self) -> list[float]:
        """When text has arrived so far. Raises: BenchmarkError as `read_events` does."""
        return read_events(self.chunks).times

    async def reach(self, chunks: int) -> None:
        """Return when so many chunks have arrived; waits for ever when the stream ends before."""
        if len(self.chunks) < chunks:
            self._wanted = chunks
            self._reached.clear()
            await self._reached.wait()

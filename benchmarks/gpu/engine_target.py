"""An engine process as a target of the scenarios of `flare bench`: no HTTP, no tokenizer.

Words are tokens: each of the load generator's words has an id, and drawn tokens are words of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flare.bench.errors import BenchmarkError
from flare.bench.prompts import WORDS, Lengths
from flare.bench.settings import BenchSettings
from flare.bench.step_times import StepTimes
from flare.bench.stream import Completion, Stream
from flare.bench.target import Message, Target
from flare.engine.client import ProcessEngineClient
from flare.engine.messages import Sampling, Submit, Tokens
from flare.errors import FlareError

_FIRST_ID = 3  # ids before it are often special; scenarios' own words have the one before


@dataclass
class EngineTarget(Target):
    """Requests go to `engine`; a message's end is a place for a checkpoint."""

    engine: ProcessEngineClient = field(kw_only=True)
    ids: dict[str, int] = field(kw_only=True)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    seeds: random.Random = field(default_factory=random.Random)

    def stream(self, conversation: list[Message], tokens: int) -> Stream:
        """See `Target.stream`."""
        messages = [[self._id(word) for word in text.split()] for _, text in conversation]
        prompt = tuple(itertools.chain.from_iterable(messages))
        body = self.settings.body
        request = Submit(
            request_id=f"bench-{next(self.numbers)}",
            prompt=prompt,
            sampling=Sampling(
                temperature=body["temperature"],
                top_k=body["top_k"],
                top_p=body["top_p"],
                seed=self.seeds.getrandbits(63),
            ),
            max_tokens=tokens,
            endpoints=tuple(itertools.accumulate(map(len, messages))),
        )
        return EngineStream(self.engine, request)

    def _id(self, word: str) -> int:
        return int(word[1:]) if word.startswith("#") else self.ids.get(word, _FIRST_ID - 1)

    async def step_times(self) -> StepTimes | None:
        """See `Target.step_times`."""
        stats = await self.engine.stats()
        times = StepTimes(stats.step_period_ms / 1000, stats.program_ms / 1000)
        return times if times.period > 0 else None

    async def steps(self, since: int = 0) -> dict[str, Any] | None:
        """See `Target.steps`."""
        return msgspec.to_builtins(await self.engine.timeline(since))


class EngineStream(Stream):
    """One request; an arrival is a message of the engine with new tokens."""

    def __init__(self, engine: ProcessEngineClient, request: Submit) -> None:
        self._engine, self._request = engine, request
        self._wanted = 0
        self._reached = asyncio.Event()
        self.sent = 0.0
        self.chunks = []

    async def run(self) -> Completion:
        """See `Stream.run`."""
        self.sent = time.perf_counter()
        tokens: list[int] = []
        counts: list[float] = []
        generation = None
        try:
            generation = await self._engine.submit(self._request)
            async for event in generation:
                if isinstance(event, Tokens):
                    self.take(b"")
                    counts.append(float(len(event.tokens)))
                    tokens += event.tokens
                else:
                    end = event
        except asyncio.CancelledError:
            if generation is not None:
                generation.cancel()
            raise
        except FlareError as error:
            raise BenchmarkError(str(error)) from error
        return Completion(
            sent=self.sent,
            times=tuple(self.arrivals()),
            counts=tuple(counts),
            text=" ".join(f"#{token}" for token in tokens),
            prompt_tokens=end.prompt_tokens,
            completion_tokens=end.output_tokens,
            cached_tokens=end.cached_tokens,
        )

    def arrivals(self) -> list[float]:
        """See `Stream.arrivals`."""
        return [time for time, _ in self.chunks]


def engine_target(
    engine: ProcessEngineClient, settings: BenchSettings, model: str, vocab_size: int
) -> EngineTarget:
    """A target around an engine that is ready. The words' ids are spread over the vocabulary."""
    assert engine.ready is not None
    step = (vocab_size - _FIRST_ID) // len(WORDS)
    assert step > 0, "fewer tokens than words"
    return EngineTarget(
        client=None,  # type: ignore[arg-type]  # nothing is asked by HTTP
        settings=settings,
        model=model,
        context=engine.ready.context,
        version=None,
        lengths=Lengths(0.0, 1.0),
        engine=engine,
        ids={word: _FIRST_ID + step * number for number, word in enumerate(WORDS)},
    )

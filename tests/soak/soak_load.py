"""Mixed load: a shuffled deck of request kinds that some workers play, over and over.

What is sent follows from the seed alone; when it arrives, and so what it meets, does not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import httpx
import soak_client as client
from soak_client import SoakError
from soak_requests import Writer

Play = Callable[[random.Random], Awaitable[str]]
MOST_FAILURES = 20  # kept with their text


class Load:
    """Against the server at `address`, whose queue takes `waiting` requests beside `slots` running ones.

    `outcomes` counts by kind; `failures` are answers that are wrong under any load."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        address: tuple[str, int],
        writer: Writer,
        *,
        seed: int,
        slots: int,
        waiting: int,
        workers: int = 6,
    ) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.failures: list[str] = []
        self.failed = 0
        self._seed = seed
        self._workers = workers
        self._number = 0
        self._shuffle = random.Random(seed)
        self._deck: list[tuple[str, Play]] = []
        self._kinds = self._cards(http, address, writer, slots + waiting + 8)

    def _cards(
        self, http: httpx.AsyncClient, address: tuple[str, int], writer: Writer, overfull: int
    ) -> list[tuple[str, int, Play]]:
        """Name, how many of each a deck has, and how it is played."""

        def good(body: Callable[[random.Random], client.Body]) -> Play:
            return lambda rng: client.answer(http, body(rng))

        return [
            ("chat", 3, good(writer.chat)),
            ("chat, streamed", 3, good(lambda rng: writer.chat(rng, stream=True))),
            ("chat, long", 2, good(writer.long)),
            ("choices", 2, good(writer.choices)),
            ("stop strings", 2, good(writer.stops)),
            ("logprobs", 2, good(writer.logprobs)),
            ("penalties", 2, good(writer.penalties)),
            ("completion", 2, good(writer.completion)),
            ("leave a stream", 4, lambda rng: client.leave(address, writer.endless(rng, stream=True), rng)),
            ("leave an answer", 3, lambda rng: client.leave(address, writer.endless(rng), rng)),
            ("leave choices", 2, lambda rng: client.leave(address, writer.endless(rng, n=3), rng)),
            (
                "slow reader",
                2,
                lambda rng: client.read_slowly(
                    address,
                    writer.chat(rng, output=96, stream=True, logprobs=True, top_logprobs=5, ignore_eos=True),
                    rng,
                ),
            ),
            ("bad request", 6, lambda rng: client.be_bad(address, writer, rng)),
            ("probe", 3, lambda rng: client.probe(http, rng)),
            ("burst", 1, lambda rng: client.burst(http, writer, rng, overfull)),
        ]

    @property
    def played(self) -> int:
        """How many cards."""
        return self._number

    async def run(self, seconds: float) -> None:
        """Play for so long, and at least one whole deck."""
        end = time.monotonic() + seconds
        least = self._number + sum(count for _, count, _ in self._kinds)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work(end, least))

    async def _work(self, end: float, least: int) -> None:
        while time.monotonic() < end or self._number < least:
            await self._play()

    async def _play(self) -> None:
        if not self._deck:
            self._deck = [(name, play) for name, count, play in self._kinds for _ in range(count)]
            self._shuffle.shuffle(self._deck)
        name, play = self._deck.pop()
        rng = random.Random(f"{self._seed}:{self._number}")
        self._number += 1
        try:
            outcome = await play(rng)
        except (SoakError, httpx.HTTPError, OSError, ValueError, LookupError, TimeoutError) as error:
            outcome = "failed"
            self.failed += 1
            if len(self.failures) < MOST_FAILURES:
                self.failures.append(f"{name}: {type(error).__name__}: {error}")
        self.outcomes.setdefault(name, Counter())[outcome] += 1

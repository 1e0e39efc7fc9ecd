"""Random service of branching conversations with images: every answer is that of a request computed alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from qwen_pictures import message, placed, prompts

from flare.device import LoadOptions
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Admitted, Event, Finished, Sampling, Submit, Tokens
from flare.frontend import Prompts
from flare.scheduler import Settings
from flare.testing import TINY_CAPACITIES, round_trip
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE

# Two of the same size: only their contents differ.
PICTURES = [picture(64, 64, 1), picture(64, 64, 2), picture(100, 90, 3), picture(40, 200, 4)]
CAPACITIES = dataclasses.replace(TINY_CAPACITIES, concurrency=3, snapshot_rows=12)
BOUND = 1e-3  # nats in FP32
Drawn = list[tuple[int, float]]


class Service:
    """An engine in this process, and what it drew for every request."""

    def __init__(self, core: Path, settings: Settings) -> None:
        self.drawn: dict[str, Drawn] = {}
        self.ended: dict[str, Finished] = {}
        self.engine = Engine(load_core(str(core), LoadOptions()), self._take, settings)

    def _take(self, event: Event) -> None:
        if isinstance(event, Tokens):
            pairs = zip(event.tokens, event.logprobs, strict=True)
            drawn = [(token, logprob.logprob) for token, logprob in pairs]
            self.drawn.setdefault(event.request_id, []).extend(drawn)
        elif isinstance(event, Finished):
            self.ended[event.request_id] = event
        else:
            assert isinstance(event, Admitted), event

    def alone(self, submit: Submit) -> Drawn:
        """What is drawn when nothing else runs."""
        self.engine.submit(submit)
        while self.engine.step():
            pass
        return self.drawn[submit.request_id]


@pytest.fixture(scope="module")
def checkpoint(flare_tiny_checkpoint: TinyCheckpoints) -> Path:
    return flare_tiny_checkpoint(RECIPE)


@pytest.fixture(scope="module")
def services(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    core = tmp_path_factory.mktemp("images") / "core.safetensors"
    round_trip(RECIPE, checkpoint, core, capacities=CAPACITIES)
    both = Service(core, Settings()), Service(core, Settings(prefix_caching=False))
    yield both
    for service in both:
        service.engine.close()


class Conversations:
    """Requests that extend earlier ones, by text or images."""

    def __init__(self, frontend: Prompts, seed: int) -> None:
        self.frontend, self.numbers = frontend, random.Random(seed)
        self.known: list[list[dict[str, object]]] = [[]]

    def request(self, name: str) -> Submit:
        numbers = self.numbers
        while True:
            # Often the oldest, so that many texts differ in an image alone.
            oldest = numbers.choice((1, len(self.known)))
            messages = [*numbers.choice(self.known[:oldest])]
            parts = [numbers.choice(["go on", *PICTURES]) for _ in range(numbers.choice((1, 1, 2)))]
            messages.append(message(*parts))
            prompt = self.frontend.from_messages(messages)
            if len(prompt.tokens) < CAPACITIES.context - 8:  # type: ignore[operator]
                break
        self.known.append([*messages, message("yes", role="assistant")])
        return Submit(
            request_id=name,
            prompt=prompt.tokens,
            sampling=Sampling(temperature=0.01, seed=numbers.randrange(1 << 30)),
            max_tokens=numbers.randint(1, 6),
            logprobs=1,
            endpoints=prompt.endpoints,
            images=tuple(placed(prompt)),  # type: ignore[arg-type]
            rope_positions=prompt.rope_positions,
        )


@pytest.mark.parametrize("seed", [0, 1])
def test_random_service(
    services: tuple[Service, Service], checkpoint: Path, seed: int, complete: bool
) -> None:
    service, oracle = services
    conversations = Conversations(prompts(checkpoint), seed)
    numbers, submitted, live = random.Random(seed), [], set()
    for number in range(400 if complete else 60):
        submit = conversations.request(f"{seed}.{number}")
        submitted.append(submit)
        live.add(submit.request_id)
        service.engine.submit(submit)
        if numbers.random() < 0.1:
            service.engine.cancel(numbers.choice(sorted(live)))
        for _ in range(numbers.choice((0, 1, 5, 20))):
            service.engine.step()
        live -= service.ended.keys()
    while service.engine.step():
        pass
    whole = cached = 0
    for submit in submitted:
        end = service.ended[submit.request_id]
        found, want = service.drawn.get(submit.request_id, []), oracle.alone(submit)
        if end.reason != "cancelled":
            assert len(found) == len(want)
            whole += bool(submit.images)
        for (token, logprob), (other, other_logprob) in zip(found, want, strict=False):
            assert token == other
            assert abs(logprob - other_logprob) < BOUND
        cached += end.cached_tokens > 0
    assert whole > len(submitted) // 4
    assert cached > len(submitted) // 8

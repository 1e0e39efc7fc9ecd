"""Random service from a seed: the same work as the stateful test, without its machinery, so it runs fast and
a fault shows quickly. Every stream is compared with the oracle and nothing may be left behind."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine_harness import Harness, request
from service_models import GRAMMARS

from flare.scheduler import Settings
from flare.testing.hash_model import HashModel


def serve(seed: int, models: Sequence[HashModel], most_rounds: int = 60) -> Harness:
    """One service; returns its closed harness. Raises AssertionError or ExecutionError when it went wrong."""
    rng = random.Random(seed)
    model = rng.choice(models)
    harness = Harness(
        model,
        max_frames=rng.choice([1, 2]),
        settings=Settings(
            max_waiting=4,
            max_passes=rng.choice([0, 1, 16]),
            inter_token_ms=rng.choice([0.01, 0.3, 150.0]),
            draft_tokens=0 if seed % 7 == 6 else None,
        ),
        proposal_key=None if seed % 3 == 0 else seed,
    )
    histories: list[tuple[int, ...]] = [()]
    count = 0
    try:
        for _ in range(rng.randrange(5, most_rounds)):
            kind = rng.random()
            if kind < 0.45:
                count += 1
                name = f"r{count}"
                prompt = _prompt(rng, histories, model.vocab_size)
                harness.submit(_request(rng, name, prompt, model))
                if len(prompt) < model.context:
                    histories += [prompt, prompt + tuple(harness.expected(name))]
            elif kind < 0.55 and count:
                harness.engine.cancel(f"r{rng.randrange(1, count + 1)}")
            elif kind < 0.97:
                for _ in range(rng.randrange(1, 12)):
                    harness.engine.step()
            else:
                harness.run()
                harness.check()
        harness.run()
        harness.check()
        harness.check_empty()
    finally:
        harness.close()
    return harness


def _prompt(rng: random.Random, histories: Sequence[tuple[int, ...]], vocab_size: int) -> tuple[int, ...]:
    """New, or continuing, branching from or repeating an earlier history."""
    base = rng.choice(histories)
    base = base[: len(base) - rng.choice([0, 0, 0, 1, 4, 9])]
    alphabet = rng.choice([2, vocab_size])
    suffix = tuple(rng.randrange(alphabet) for _ in range(rng.choice([0, 0, 1, 2, 5, 17, 30])))
    return base + suffix or (1,)


def _request(rng: random.Random, name: str, prompt: tuple[int, ...], model: HashModel):
    if model.tokenizer and rng.random() < 0.6:
        return request(
            name,
            prompt,
            max_tokens=rng.choice([1, 2, 5, 12, 45]),
            stops=(0, *rng.choice([(), (model.vocab_size - 1,)])),
            seed=rng.getrandbits(64),
            endpoints=tuple(rng.randrange(1, 41) for _ in range(rng.choice([0, 2]))),
            grammar=rng.choice(GRAMMARS),
        )
    return request(
        name,
        prompt,
        max_tokens=rng.choice([1, 2, 5, 12, 45]),
        stops=tuple(rng.sample(range(model.vocab_size), rng.choice([0, 0, 2]))),
        min_tokens=rng.choice([0, 0, 3]),
        seed=rng.getrandbits(64),
        endpoints=tuple(rng.randrange(1, 41) for _ in range(rng.choice([0, 0, 2, 4]))),
    )

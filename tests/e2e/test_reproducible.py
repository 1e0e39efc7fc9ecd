"""Same seed, same tokens: in any slot, beside any traffic, in any batch, through the whole product."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest
from flare_run import FlareRun
from generations import draw, draw_together

REQUESTS = [
    ("short", 1, 40),
    ("A longer prompt that needs more than one prefill chunk: " + "abc " * 20, 2, 60),
    ("x", 3, 25),
    ("mid " * 10, 4, 50),
    ("short", 5, 40),
    ("y" * 65, 6, 33),
    ("été 🙂", 7, 45),
    ("z" * 16, 8, 64),
]


def test_a_seed_decides_the_text(client: openai.OpenAI) -> None:
    first = draw(client, "once", seed=42)

    assert draw(client, "once", seed=42) == first
    assert draw(client, "once", seed=43).tokens != first.tokens
    assert draw(client, "once", seed=-42).tokens != first.tokens


def test_without_a_seed_texts_differ(served: FlareRun, client: openai.OpenAI) -> None:
    texts = {
        client.completions.create(model=served.name, prompt="once", max_tokens=30).choices[0].text
        for _ in range(3)
    }

    assert len(texts) == 3


def test_other_traffic_changes_nothing(client: openai.OpenAI) -> None:
    alone = draw(client, "once", seed=42)
    others = [("other " * n, 100 + n, 30) for n in range(1, 4)]

    *_, beside = draw_together(client, [*others, ("once", 42, 40)])
    first, *_ = draw_together(client, [("once", 42, 40), *others])

    assert beside == alone
    assert first == alone


@pytest.mark.parametrize("core", ["tiny_core", "tiny_core_bf16"])
def test_eight_requests_on_four_slots_equal_the_same_alone(core: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(core)
    with FlareRun(path) as server, server.client() as client:
        alone = [draw(client, *one) for one in REQUESTS]
        together = draw_together(client, REQUESTS)

    assert [len(drawn.tokens) for drawn in together] == [length for _, _, length in REQUESTS]
    assert [drawn.tokens for drawn in together] == [drawn.tokens for drawn in alone]
    for mine, same in zip(together, alone, strict=True):
        assert mine.logprobs == pytest.approx(same.logprobs, abs=1e-5)

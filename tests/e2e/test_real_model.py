"""SmolLM2 itself: answers that make sense, through the whole product."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from flare_run import FlareRun
from generations import draw, draw_together

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def real_client(smollm_core: Path) -> Iterator[openai.OpenAI]:
    with FlareRun(smollm_core, threads=None) as server, server.client() as client:
        yield client.with_options(timeout=300)


def test_it_knows_the_capital_of_france(real_client: openai.OpenAI) -> None:
    response = real_client.chat.completions.create(
        model=real_client.models.list().data[0].id,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0.05,
        seed=1,
        max_tokens=40,
    )

    assert "Paris" in (response.choices[0].message.content or "")
    assert response.choices[0].finish_reason == "stop"


def test_a_conversation_in_several_languages_streams_whole_characters(real_client: openai.OpenAI) -> None:
    options = {
        "model": real_client.models.list().data[0].id,
        "messages": [{"role": "user", "content": "Répète: déjà vu 🙂 日本語"}],
        "seed": 2,
        "max_tokens": 40,
    }
    whole = real_client.chat.completions.create(**options)
    stream = real_client.chat.completions.create(**options, stream=True)

    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert streamed == whole.choices[0].message.content


def test_requests_together_equal_the_same_alone(real_client: openai.OpenAI) -> None:
    requests = [
        ("The weather today is", 1, 20),
        ("Once upon a time " * 30, 2, 12),
        ("def f(x):", 3, 16),
        ("1, 2, 3,", 4, 24),
        ("A", 5, 8),
    ]
    alone = [draw(real_client, *one) for one in requests]

    assert [drawn.tokens for drawn in draw_together(real_client, requests)] == [d.tokens for d in alone]

"""Small requests of a session, named over HTTP, leave its conversation in the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from live import TOKENIZER, LiveServer

from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.server import ServerSettings
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.sim_loader import LOADER, describe

MODEL = HashModel(
    context=512,
    page_tokens=8,
    pages=70,
    snapshot_rows=8,
    concurrency=2,
    decode_lanes=(2,),
    prefill_tokens=(16, 64),
    vocab_size=TOKENIZER.vocab_size,
)
BIG = TOKENIZER.encode("the quick brown fox " * 12)
OUTPUT = 8


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    clients: list[ProcessEngineClient] = []

    async def start() -> ProcessEngineClient:
        clients.append(await ProcessEngineClient.start(describe(MODEL), EngineOptions(loader=LOADER)))
        return clients[0]

    with LiveServer(start_engine=start, settings=ServerSettings(debug_endpoints=True)) as server:
        yield server.url
        shutdown = clients[0].shutdown(drain=False)
        asyncio.run_coroutine_threadsafe(shutdown, server.loop).result(20)


def cached(url: str, prompt: list[int], name: str, session: dict[str, str]) -> int:
    """Tokens that a completion of OUTPUT tokens had from the cache."""
    body = {"prompt": prompt, "max_tokens": OUTPUT, "seed": 1, "ignore_eos": True, "cache_salt": name}
    response = httpx.post(f"{url}/v1/completions", json=body, headers=session, timeout=30)
    assert response.status_code == 200, response.text
    details = response.json()["usage"]["prompt_tokens_details"]
    return 0 if details is None else details["cached_tokens"]


def titles(url: str, name: str, session: dict[str, str]) -> None:
    """As agents ask for them, and each another one."""
    for number in range(14):
        body = {
            "max_tokens": 4,
            "messages": [{"role": "user", "content": f"{number} title"}],
            "cache_salt": name,
        }
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=session, timeout=30)
        assert answer.status_code == 200


@pytest.mark.parametrize("header", ["x-claude-code-session-id", "x-session-id", None])
def test_the_second_turn_goes_on_from_the_end_of_the_first(url: str, header: str | None) -> None:
    name = str(header)
    session = {} if header is None else {header: name}
    assert cached(url, BIG, name, session) == 0
    titles(url, name, session)
    sides = [prefix["side"] for prefix in httpx.get(f"{url}/debug/cache").json()["checkpoints"]]
    answer = oracle(BIG, 1, OUTPUT, vocab_size=MODEL.vocab_size)
    found = cached(url, [*BIG, *answer, 5, 6], name, session)
    end = len(BIG) + OUTPUT - 1
    if header is None:
        assert found < end  # so there was pressure
        assert not any(sides)
    else:
        assert found == end
        assert any(sides)

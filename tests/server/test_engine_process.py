"""The server in front of a real engine process, which runs the hash model on the sim device."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import openai
import pytest
from live import MODEL, TOKENIZER, LiveServer, raw_post

from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.engine.messages import Stats
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.sim_loader import LOADER, describe

HASH_MODEL = HashModel(context=256, page_tokens=8, vocab_size=TOKENIZER.vocab_size)
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@dataclass
class Served:
    """A running server and its engine's client."""

    server: LiveServer
    client: ProcessEngineClient

    def stats(self) -> Stats:
        return asyncio.run_coroutine_threadsafe(self.client.stats(), self.server.loop).result(10)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    clients: list[ProcessEngineClient] = []

    async def start() -> ProcessEngineClient:
        options = EngineOptions(loader=LOADER)
        clients.append(await ProcessEngineClient.start(describe(HASH_MODEL, delay_ms=2), options))
        return clients[0]

    with LiveServer(start_engine=start) as server:
        yield Served(server, clients[0])
        shutdown = clients[0].shutdown(drain=False)
        asyncio.run_coroutine_threadsafe(shutdown, server.loop).result(20)


def test_texts_are_those_of_the_oracle(served: Served) -> None:
    prompts = ["one", "two words", "x" * 50, "été 🙂"]
    with openai.OpenAI(base_url=f"{served.server.url}/v1", api_key="none", max_retries=0) as client:
        response = client.completions.create(
            model=MODEL, prompt=prompts, seed=11, max_tokens=24, extra_body={"ignore_eos": True}
        )

    for prompt, choice in zip(prompts, response.choices, strict=True):
        tokens = oracle(TOKENIZER.encode(prompt), 11, 24, vocab_size=HASH_MODEL.vocab_size)
        assert choice.text == TOKENIZER.decode(tokens)
        assert choice.finish_reason == "length"


def test_the_same_seed_gives_the_same_stream(served: Served) -> None:
    body = {"prompt": "again", "seed": 3, "max_tokens": 40, "stream": True, "ignore_eos": True}
    texts = []
    for _ in range(2):
        with httpx.stream("POST", served.server.url + TEXT, json=body) as response:
            events = [line[6:] for line in response.iter_lines() if line.startswith("data: {")]
        texts.append("".join(json.loads(event)["choices"][0]["text"] for event in events))

    tokens = oracle(TOKENIZER.encode("again"), 3, 40, vocab_size=HASH_MODEL.vocab_size)
    assert texts == [TOKENIZER.decode(tokens)] * 2


def test_after_fifty_disconnects_everything_is_free(served: Served) -> None:
    server = served.server
    for number in range(50):
        body = {
            "messages": [{"role": "user", "content": "go on " * (number % 7)}],
            "stream": number % 2 == 0,
            "ignore_eos": True,
            "n": 1 + number % 3,
        }
        with server.connect() as connection:
            connection.sendall(raw_post(CHAT, json.dumps(body).encode()))
            if number % 4 == 0:
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
            elif number % 4 == 1:
                server.wait(lambda: served.stats().running > 0)

    def free() -> bool:
        stats = served.stats()
        return not stats.running and not stats.waiting and stats.free_pages == stats.total_pages

    server.wait(free, seconds=20)
    stats = served.stats()
    assert stats.free_slots == HASH_MODEL.concurrency


def test_more_requests_than_slots_wait_and_are_served(served: Served) -> None:
    with openai.OpenAI(base_url=f"{served.server.url}/v1", api_key="none", max_retries=0) as client:
        response = client.completions.create(
            model=MODEL, prompt=["a"] * 3, n=4, max_tokens=10, extra_body={"ignore_eos": True}
        )

    assert len(response.choices) == 12
    assert {choice.finish_reason for choice in response.choices} == {"length"}


def test_killing_the_engine_is_seen_by_streams_and_health(served: Served) -> None:
    body = {"prompt": "x", "stream": True, "ignore_eos": True}
    with httpx.Client(base_url=served.server.url, timeout=20) as http:
        assert http.get("/health").status_code == 200
        with http.stream("POST", TEXT, json=body) as response:
            lines = response.iter_lines()
            next(lines)
            os.kill(served.client.pid, signal.SIGKILL)
            last = [line for line in lines if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "execution_failed"
        assert http.get("/health").status_code == 503
        assert http.post(TEXT, json=body).status_code == 503

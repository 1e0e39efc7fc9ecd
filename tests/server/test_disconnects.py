"""Whatever a client waits for when it goes away, its request ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import httpx
import openai
import pytest
from live import MODEL, TOKENIZER, LiveServer, chatter, raw_post, say

from flare.testing.scripted_engine import Script

USER = [{"role": "user", "content": "Hi"}]


def request_bytes(**fields: object) -> bytes:
    body = {"model": MODEL, "messages": USER, **fields}
    return raw_post("/v1/chat/completions", json.dumps(body).encode())


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_cancels_a_running_request(server: LiveServer, stream: bool, n: int) -> None:
    server.engine.script = chatter(delay=0.01)
    with server.connect() as connection:
        connection.sendall(request_bytes(stream=stream, n=n))
        server.wait(lambda: server.engine.running == n)
        if stream:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        time.sleep(0.05)
        assert server.engine.counters.cancelled == 0

    server.wait(lambda: server.engine.running == 0)
    assert server.engine.counters.cancelled == n


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_withdraws_a_request_that_waits_for_admission(server: LiveServer, stream: bool) -> None:
    server.engine.script = chatter(admission_delay=60)
    with server.connect() as connection:
        connection.sendall(request_bytes(stream=stream))
        server.wait(lambda: len(server.engine.counters.submissions) == 1)

    server.wait(lambda: server.engine.counters.withdrawn == 1)
    assert server.engine.counters.admitted == 0


def test_a_disconnect_while_the_body_is_sent(server: LiveServer, http: httpx.Client) -> None:
    with server.connect() as connection:
        connection.sendall(request_bytes()[:-10])
        time.sleep(0.05)

    assert http.get("/health").status_code == 200
    assert server.engine.counters.submissions == []


def test_a_half_admitted_group_is_withdrawn_and_cancelled(server: LiveServer) -> None:
    server.engine.script = lambda submit: (
        chatter(delay=0.01)(submit)
        if submit.request_id.endswith("-0")
        else Script(tokens=[5], admission_delay=60)
    )
    with server.connect() as connection:
        connection.sendall(request_bytes(stream=True, n=3))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")

    server.wait(lambda: server.engine.counters.withdrawn == 2 and server.engine.running == 0)
    assert server.engine.counters.cancelled == 1


def test_fifty_disconnects_of_the_real_client(server: LiveServer) -> None:
    server.engine.script = chatter(delay=0.01)

    async def one(client: openai.AsyncOpenAI, number: int) -> None:
        create = client.chat.completions.create
        if number % 2:
            stream = await create(model=MODEL, messages=USER, stream=True)
            async for _ in stream:
                break
            await stream.close()
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(create(model=MODEL, messages=USER), 0.5 + number / 1000)

    async def all_of_them() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            await asyncio.gather(*(one(client, number) for number in range(50)))

    asyncio.run(all_of_them())

    server.wait(lambda: server.engine.running == 0)
    counters = server.engine.counters
    assert counters.admitted + counters.withdrawn == len(counters.submissions)
    assert counters.ended == counters.admitted
    assert counters.cancelled == counters.admitted > 25


def test_a_complete_response_is_not_a_disconnect(server: LiveServer, http: httpx.Client) -> None:
    server.engine.script = say("hello")
    for _ in range(5):
        assert http.post("/v1/chat/completions", json={"messages": USER, "stream": True}).status_code == 200

    assert server.engine.counters.cancelled == 0
    assert server.engine.counters.ended == 5


def test_a_slow_reader_blocks_nobody_and_gets_everything(server: LiveServer, http: httpx.Client) -> None:
    server.engine.script = chatter(batch=200)
    with server.connect() as connection:
        body = {"prompt": ["x"] * 100, "stream": True, "max_tokens": 250, "ignore_eos": True}
        connection.sendall(raw_post("/v1/completions", json.dumps(body).encode()))
        server.wait(lambda: server.engine.counters.ended == 100)

        started = time.monotonic()
        answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 5})
        assert answer.status_code == 200
        assert time.monotonic() - started < 2

        received = b""
        while b"[DONE]" not in received:
            received += connection.recv(65536)
    events = [line for line in received.split(b"\n") if line.startswith(b"data: {")]
    choices = [json.loads(event[6:])["choices"][0] for event in events]
    text = "".join(choice["text"] for choice in choices if choice["index"] == 7)
    assert text == TOKENIZER.decode((TOKENIZER.encode("la ") * 250)[:250])
    assert sum(choice["finish_reason"] == "length" for choice in choices) == 100

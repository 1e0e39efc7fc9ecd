"""The soak's clients see wrong answers: against a server that gives them."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest
from soak_client import SoakError, answer, be_bad
from soak_load import Load
from soak_requests import Writer

CHAT = {"messages": [{"role": "user", "content": "x"}]}
END = {"choices": [{"index": 0, "finish_reason": "stop"}]}


def given(
    status: int, *documents: Any, done: bool = True, stream: bool = False, **headers: str
) -> httpx.Response:
    if not stream:
        return httpx.Response(status, json=documents[0], headers=headers)
    events = [json.dumps(document) for document in documents] + ["[DONE]"] * done
    return httpx.Response(status, text="".join(f"data: {event}\n\n" for event in events))


def ask(response: httpx.Response, **fields: Any) -> str:
    async def run() -> str:
        transport = httpx.MockTransport(lambda request: response)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            return await answer(http, {**CHAT, **fields})

    return asyncio.run(run())


def test_right_answers_pass() -> None:
    two = {"choices": [{"index": 1, "finish_reason": "length"}, {"index": 0, "finish_reason": "stop"}]}
    going = {"choices": [{"index": 0, "finish_reason": None}]}
    assert ask(given(200, END)) == "answered"
    assert ask(given(200, two), n=2) == "answered"
    assert ask(given(200, going, END, {"choices": []}, stream=True), stream=True) == "answered"
    assert ask(given(503, {}, **{"retry-after": "1"})) == "refused"


@pytest.mark.parametrize(
    ("response", "fields", "message"),
    [
        (given(500, {"error": {}}), {}, "status 500"),
        (given(503, {}), {}, "without retry-after"),
        (given(200, END, stream=True, done=False), {"stream": True}, "a stream ended with"),
        (given(200, END, END, stream=True), {"stream": True}, "ended twice"),
        (given(200, {"choices": []}), {}, "1 choices ended as {}"),
        (given(200, END), {"n": 2}, "2 choices ended"),
        (given(200, {"choices": [{"index": 0, "finish_reason": "odd"}]}), {}, "odd"),
    ],
)
def test_wrong_answers_are_seen(response: httpx.Response, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SoakError, match=message):
        ask(response, **fields)


def load_against(status: bytes, seed: int) -> Load:
    """One deck against a server that gives every request the same answer."""

    async def run() -> Load:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1 << 16)
            writer.write(b"HTTP/1.1 " + status + b" x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        async with server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", timeout=10) as http:
            load = Load(http, address, Writer("m", 256, 1.0), seed=seed, slots=1, waiting=1)
            await load.run(0)
            return load

    return asyncio.run(run())


def test_failures_are_counted_by_kind() -> None:
    load = load_against(b"500", seed=4)
    assert load.played >= 39
    assert load.outcomes["chat"]["failed"] == load.outcomes["chat"].total() >= 3
    assert load.failed > len(load.failures) == 20
    assert any("status 500" in failure for failure in load.failures)
    # Those that leave do not wait for an answer.
    assert "failed" not in load.outcomes["leave an answer"]


def test_a_bad_request_must_not_succeed() -> None:
    async def run() -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1 << 16)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            address = server.sockets[0].getsockname()
            rng = random.Random(0)
            return await be_bad(address, Writer("m", 256, 1.0), rng)

    with pytest.raises(SoakError, match="200 OK"):
        asyncio.run(run())

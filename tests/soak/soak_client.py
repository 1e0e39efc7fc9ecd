"""One request each, as clients send them: patient, slow, or gone before the end. Every function returns the
outcome in a word; SoakError says what a client must never see."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
from soak_requests import BAD, Body, Writer, post

PATIENCE = 120.0  # seconds for any answer, also behind a full queue


class SoakError(Exception):
    """An answer that is wrong under any load."""


def path_of(body: Body) -> str:
    """The endpoint of a body."""
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


async def answer(http: httpx.AsyncClient, body: Body) -> str:
    """Read an answer to its end and check its form. 503 is right for a full queue."""
    async with http.stream("POST", path_of(body), json=body) as response:
        text = (await response.aread()).decode()
        if response.status_code == 503:
            if "retry-after" not in response.headers:
                raise SoakError("503 without retry-after")
            return "refused"
        if response.status_code != 200:
            raise SoakError(f"status {response.status_code} for {body}: {text[:300]}")
    documents = _events(text) if body.get("stream") else [json.loads(text)]
    _check(body, documents)
    return "answered"


def _events(text: str) -> list[dict[str, Any]]:
    *events, last = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    if last != "[DONE]":
        raise SoakError(f"a stream ended with {last[:300]!r}")
    return [json.loads(event) for event in events]


def _check(body: Body, documents: list[dict[str, Any]]) -> None:
    ends: dict[int, str] = {}
    for document in documents:
        for choice in document["choices"]:
            if choice["finish_reason"] is not None:
                if choice["index"] in ends:
                    raise SoakError(f"choice {choice['index']} ended twice")
                ends[choice["index"]] = choice["finish_reason"]
    prompts = body.get("prompt")
    several = len(prompts) if isinstance(prompts, list) and isinstance(prompts[0], str) else 1
    wanted = several * body.get("n", 1)
    if sorted(ends) != list(range(wanted)) or set(ends.values()) - {"stop", "length"}:
        raise SoakError(f"{wanted} choices ended as {ends}")


async def burst(http: httpx.AsyncClient, writer: Writer, rng: random.Random, requests: int) -> str:
    """More requests at once than the queue takes: some are refused, the others answered."""
    bodies = [writer.chat(rng, output=48, ignore_eos=True) for _ in range(requests)]
    outcomes = await asyncio.gather(*(answer(http, body) for body in bodies))
    if "refused" not in outcomes:
        return "all answered"
    return "some refused" if "answered" in outcomes else "all refused"


@contextlib.asynccontextmanager
async def connection(
    address: tuple[str, int], receive_buffer: int | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A raw connection that is closed without ceremony."""
    raw = socket.socket()
    raw.setblocking(False)
    if receive_buffer is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(raw, address)
    reader, writer = await asyncio.open_connection(sock=raw, limit=1 << 12)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def leave(address: tuple[str, int], body: Body, rng: random.Random) -> str:
    """Go away at some moment: while the request is sent, waits, runs or streams."""
    request = post(path_of(body), json.dumps(body).encode())
    moment = rng.choice(["half sent", "at once", "later", "later", "reading", "reading"])
    async with connection(address) as (reader, writer):
        writer.write(request[: len(request) // 2] if moment == "half sent" else request)
        await writer.drain()
        if moment == "later":
            await asyncio.sleep(rng.uniform(0, 0.3))
        elif moment == "reading":
            async with asyncio.timeout(PATIENCE):
                for _ in range(rng.randint(1, 12)):
                    if not await reader.read(400):
                        break
    return f"left {moment}"


async def read_slowly(address: tuple[str, int], body: Body, rng: random.Random) -> str:
    """Read a stream in small pieces with pauses, then catch up or leave."""
    async with connection(address, receive_buffer=2048) as (reader, writer):
        writer.write(post(path_of(body), json.dumps(body).encode()))
        await writer.drain()
        received = b""
        async with asyncio.timeout(PATIENCE):
            for _ in range(rng.randint(4, 12)):
                received += await reader.read(64)
                await asyncio.sleep(rng.uniform(0.05, 0.3))
            if rng.random() < 0.4:
                return "left slowly"
            while piece := await reader.read(4096):
                received += piece
    status = received.split(b" ", 2)[1]
    if status == b"503":
        return "refused"
    if status != b"200" or b"data: [DONE]\n\n" not in received:
        raise SoakError(f"a slow reader got {received[:100]!r} ... {received[-200:]!r}")
    return "read slowly"


async def be_bad(address: tuple[str, int], writer: Writer, rng: random.Random) -> str:
    """A request that is wrong in itself, or a connection without one."""
    name = rng.choice([*BAD, "silent", "half a header"])
    async with connection(address) as (reader, out):
        if name in ("silent", "half a header"):
            out.write(b"POST /v1/comple" if name == "half a header" else b"")
            await asyncio.sleep(rng.uniform(0, 0.2))
            return name
        out.write(BAD[name](writer))
        received = b""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionResetError):
                while piece := await reader.read(4096):
                    received += piece
    status = received.split(b" ", 2)[1:2]
    # A full queue refuses before it reads.
    if not status or not (status[0].startswith(b"4") or status[0] == b"503"):
        raise SoakError(f"{name}: got {received[:300]!r}")
    return name


async def probe(http: httpx.AsyncClient, rng: random.Random) -> str:
    """What load balancers and dashboards ask."""
    path = rng.choice(["/health", "/ready", "/v1/models", "/metrics", "/openapi.json"])
    response = await http.get(path)
    if response.status_code != 200:
        raise SoakError(f"{path}: status {response.status_code}: {response.text[:300]}")
    return path

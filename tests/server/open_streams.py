"""Many streams open at once at one server, read by a client that does nothing but count."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_model import WEATHER, call

TEXT = (
    "<think>"
    + "The user wants to know about the weather, so I look. " * 4
    + "</think>\n\nI look it up for you.\n"
    "It may rain, and it may not: 21 degrees.\n" + call("weather", city="Bern, " * 12, days="2")
)
"""What the scripted model writes: reasoning, an answer and a call."""
_USER = {"role": "user", "content": "How is the weather?"}
_FUNCTION = {"name": "weather", "parameters": WEATHER}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": [_USER], "tools": [{"type": "function", "function": _FUNCTION}], "max_tokens": 400},
    ),
    "responses": (
        "/v1/responses",
        {"input": [_USER], "tools": [{"type": "function", **_FUNCTION}], "max_output_tokens": 400},
    ),
    "messages": (
        "/v1/messages",
        {
            "messages": [_USER],
            "tools": [{"name": "weather", "input_schema": WEATHER}],
            "max_tokens": 400,
        },
    ),
}
"""Path and body of a request of every protocol, for a model with tools."""
LAST = (
    b'"finish_reason":"',
    b"event: response.completed",
    b"event: response.incomplete",
    b"event: message_stop",
)


@dataclass
class Streams:
    """What was seen. Seconds: `first_bytes` and `first_events` since each request was sent, `pauses` between
    reads of one stream, `lasted` from the first event of all to the last."""

    events: int = 0
    ended: int = 0
    first_bytes: list[float] = field(default_factory=list)
    first_events: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    lasted: float = 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(round(len(ordered) * share, 6)) - 1]


def read_streams(address: tuple[str, int], path: str, body: dict[str, Any], count: int) -> Streams:
    """Open `count` streams of one request at the same moment and read them to their ends."""
    return asyncio.run(_read_all(address, path, body, count))


async def _read_all(address: tuple[str, int], path: str, body: dict[str, Any], count: int) -> Streams:
    content = json.dumps({**body, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
    request = f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
    connections = [await asyncio.open_connection(*address) for _ in range(count)]
    seen = Streams()
    moments: list[tuple[float, float]] = []
    tasks = [_read(reader, writer, request, seen, moments) for reader, writer in connections]
    await asyncio.gather(*tasks)
    seen.lasted = max(last for _, last in moments) - min(first for first, _ in moments)
    return seen


async def _read(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: bytes,
    seen: Streams,
    moments: list[tuple[float, float]],
) -> None:
    writer.write(request)
    sent = before = time.perf_counter()
    first_event = 0.0
    tail = b""
    while data := await reader.read(1 << 16):
        now = time.perf_counter()
        if before == sent:
            assert data.startswith(b"HTTP/1.1 200"), data[:2000]
            seen.first_bytes.append(now - sent)
        data = tail[-1:] + data
        if events := data.count(b"\n\n"):
            seen.events += events
            if first_event:
                seen.pauses.append(now - before)
            else:
                first_event = now
                seen.first_events.append(now - sent)
        tail, before = (tail + data)[-4096:], now
    seen.ended += any(mark in tail for mark in LAST)
    moments.append((first_event, before))
    writer.close()

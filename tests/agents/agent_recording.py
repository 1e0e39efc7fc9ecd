"""What a client sent: bodies of its requests, and their shape without its texts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_KEPT = ("x-anthropic-billing-header:",)
"""Beginnings of long texts that mean something to a server."""
_LONGEST = 60
_VOLATILE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|/[\w./-]{6,}")
_HEADERS = ("anthropic-beta", "anthropic-version", "x-claude-code-session-id", "x-session-id", "session_id")


@dataclass
class Recorded:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any = None


@dataclass
class Recorder:
    """ASGI middleware that keeps what passes."""

    app: ASGIApp
    requests: list[Recorded] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        headers = {
            name.decode(): _VOLATILE.sub("0", value.decode())
            for name, value in scope["headers"]
            if name.decode() in _HEADERS
        }
        recorded = Recorded(scope["method"], path, headers)
        self.requests.append(recorded)
        body = bytearray()

        async def tapped() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                body.extend(message.get("body", b""))
                if not message.get("more_body") and body:
                    recorded.body = json.loads(bytes(body))
            return message

        await self.app(scope, tapped, send)


def without_texts(value: Any) -> Any:
    """`value` with filler in the place of long texts, and without ids and paths."""
    if isinstance(value, dict):
        return {key: without_texts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_texts(each) for each in value]
    if not isinstance(value, str):
        return value
    value = _VOLATILE.sub("0", value)
    if len(value) <= _LONGEST or value.startswith(_KEPT) or value.startswith("data:"):
        return value
    filler = "words of a client, "
    return (filler * (_LONGEST // len(filler) + 1))[:_LONGEST] + f" {len(value)}"

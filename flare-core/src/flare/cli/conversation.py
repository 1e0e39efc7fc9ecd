"""The client behind `flare chat`: one server, answers as streams of text, and how fast they came."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from flare.errors import ExecutionError, RequestError, UnavailableError

_CONNECT_SECONDS = 10


@dataclass
class Answer:
    """What arrived: pieces of text, when the first and the last came (seconds since the request), and the
    server's token counts, which are empty when the stream was stopped."""

    parts: list[str] = field(default_factory=list)
    first: float = 0.0
    last: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)

    def add(self, text: str, seconds: float) -> None:
        """A piece of text that came `seconds` after the request."""
        self.first = self.first if self.parts else seconds
        self.last = seconds
        self.parts.append(text)

    def summary(self) -> str:
        """One line: token counts, time to the first text, tokens per second after it."""
        if not self.usage:
            return f"first text after {1000 * self.first:.0f} ms"
        drawn = self.usage["completion_tokens"]
        line = f"{self.usage['prompt_tokens']} prompt tokens, {drawn} drawn"
        if self.parts:
            line += f", first text after {1000 * self.first:.0f} ms"
        if drawn > 1 and self.last > self.first:
            line += f", {(drawn - 1) / (self.last - self.first):.1f} tok/s"
        return line


class Server:
    """A context around one connection. Methods raise UnavailableError when nothing, or something else than a
    model server, answers at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._client = httpx.Client(base_url=url, timeout=httpx.Timeout(_CONNECT_SECONDS, read=None))
        except (httpx.InvalidURL, ValueError) as error:
            raise UnavailableError(f"{url!r} is not an address: {error}", field="url") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def model(self) -> str:
        """Name of the served model."""
        try:
            response = self._client.get("/v1/models", timeout=_CONNECT_SECONDS).raise_for_status()
            return str(response.json()["data"][0]["id"])
        except httpx.TransportError as error:
            raise UnavailableError(f"no server answers at {self._url}: {error}", field="url") from error
        except (httpx.HTTPStatusError, ValueError, LookupError, TypeError) as error:
            raise UnavailableError(f"{self._url} is not a model server: {error}", field="url") from error

    def stream(self, body: dict[str, Any], answer: Answer) -> Iterator[str]:
        """Pieces of the answer to a chat request, also collected in `answer`.

        Raises RequestError with the server's message when it refuses, ExecutionError when the answer breaks
        off.
        """
        stream = {**body, "stream": True, "stream_options": {"include_usage": True}}
        started = time.perf_counter()
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=stream) as response:
                if response.status_code != 200:
                    response.read()
                    raise RequestError(_message(response.text))
                for event in _events(response):
                    answer.usage = event.get("usage") or answer.usage
                    for choice in event["choices"]:
                        if text := choice["delta"].get("content"):
                            answer.add(text, time.perf_counter() - started)
                            yield text
        except httpx.ConnectError as error:
            raise UnavailableError(f"no server answers at {self._url}: {error}", field="url") from error
        except httpx.TransportError as error:
            raise ExecutionError(f"the connection broke: {error}") from error


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Decoded events up to `[DONE]`; a stream that ends without it has failed."""
    for line in response.iter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            event: dict[str, Any] = json.loads(line[len("data: ") :])
            if "error" in event:
                raise ExecutionError(_message(line[len("data: ") :]))
            yield event
    raise ExecutionError("the answer broke off")


def _message(body: str) -> str:
    """The message of an error body in the shape of the OpenAI API, or the start of whatever else came."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"the server answered {body[:200]!r}"

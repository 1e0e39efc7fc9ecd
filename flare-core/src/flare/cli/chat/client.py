"""The server at the other end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Self

import httpx

from flare.cli.chat.answer import Answer, Piece
from flare.cli.chat.model import Model
from flare.errors import ExecutionError, RequestError, UnavailableError

_CONNECT_SECONDS = 10
_USAGE = {"include_usage": True, "continuous_usage_stats": True}  # a stopped answer has counts too


class Server:
    """A context around one connection. Methods raise UnavailableError when nothing, or something else than a
    model server, answers at `url`."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._url = url
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        timeout = httpx.Timeout(_CONNECT_SECONDS, read=None)
        try:
            self._client = httpx.Client(base_url=url, timeout=timeout, headers=headers)
        except (httpx.InvalidURL, ValueError) as error:
            raise UnavailableError(f"{url!r} is not an address: {error}", field="url") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def model(self) -> Model:
        """The served model. Raises RequestError when the server wants a key."""
        try:
            response = self._client.get("/v1/models", timeout=_CONNECT_SECONDS)
            if response.status_code in (401, 403):
                raise RequestError(_message(response.text), field="api_key")
            return Model.of(response.raise_for_status().json()["data"][0])
        except httpx.TransportError as error:
            raise UnavailableError(f"no server answers at {self._url}: {error}", field="url") from error
        except RequestError:
            raise
        except (httpx.HTTPStatusError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise UnavailableError(f"{self._url} is not a model server: {error}", field="url") from error

    def stream(self, body: dict[str, Any], answer: Answer) -> Iterator[Piece]:
        """Pieces of the answer to a chat request, also collected in `answer`.

        Raises RequestError with the server's message when it refuses, ExecutionError when the answer breaks
        off.
        """
        stream = {**body, "stream": True, "stream_options": _USAGE}
        started = time.perf_counter()
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=stream) as response:
                if response.status_code != 200:
                    response.read()
                    raise RequestError(_message(response.text))
                for data in _events(response):
                    yield from _taken(data, answer, time.perf_counter() - started)
        except httpx.ConnectError as error:
            raise UnavailableError(f"no server answers at {self._url}: {error}", field="url") from error
        except httpx.TransportError as error:
            raise ExecutionError(f"the connection broke: {error}") from error


def _events(response: httpx.Response) -> Iterator[str]:
    """Data of the events up to `[DONE]`; a stream that ends without it has failed."""
    for line in response.iter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield line[len("data: ") :]
    raise ExecutionError("the answer broke off")


def _taken(data: str, answer: Answer, seconds: float) -> list[Piece]:
    try:
        event = json.loads(data)
        if "error" not in event:
            return answer.take(event, seconds)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ExecutionError(f"the server sent what is no part of an answer: {data[:200]!r}") from error
    raise ExecutionError(_message(data))


def _message(body: str) -> str:
    """The message of an error body in the shape of the OpenAI API, or the start of whatever else came."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"the server answered {body[:200]!r}"

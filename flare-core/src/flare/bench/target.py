"""A server under measurement: what it says about itself, and conversations sent to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from flare.bench.errors import BenchmarkError
from flare.bench.prompts import Lengths, PromptWriter, calibrate
from flare.bench.settings import BenchSettings, Endpoint
from flare.bench.step_log import StepLog, read_steps
from flare.bench.step_times import StepTimes, read_step_times
from flare.bench.stream import Completion, Stream
from flare.errors import UnavailableError

# Asked of every server: usage at the end, and, from servers that know it, with every piece of text.
_USAGE = {"include_usage": True, "continuous_usage_stats": True}
_PATHS = {Endpoint.CHAT: "/v1/chat/completions", Endpoint.COMPLETIONS: "/v1/completions"}
_QUESTION_SECONDS = 10.0

Message = tuple[str, str]  # role and text


def user(text: str) -> Message:
    """A message of the user; as text alone for completions."""
    return "user", text


@dataclass
class Target:
    """`context` is the server's limit in tokens of prompt and output, None where it does not say."""

    client: httpx.AsyncClient
    settings: BenchSettings
    model: str
    context: int | None
    version: str | None
    writer: PromptWriter = field(default_factory=PromptWriter)
    lengths: Lengths = field(default_factory=lambda: Lengths(0.0, 1.0))
    step_log: StepLog = field(default_factory=StepLog)

    def stream(self, conversation: list[Message], tokens: int) -> Stream:
        """A request for `tokens` tokens, not sent yet."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": tokens, **self.settings.body}
        body |= {"stream": True, "stream_options": _USAGE}
        if self.settings.endpoint is Endpoint.CHAT:
            body["messages"] = [{"role": role, "content": text} for role, text in conversation]
        else:
            body["prompt"] = "\n".join(text for _, text in conversation)
        # A null in the user's body takes a field away.
        body = {name: value for name, value in body.items() if value is not None}
        return Stream(self.client, _PATHS[self.settings.endpoint], body)

    async def complete(self, conversation: list[Message], tokens: int) -> Completion:
        """Stream `tokens` tokens. Raises: BenchmarkError."""
        return await self.stream(conversation, tokens).run()

    def prompt(self, tokens: int) -> str:
        """Text that makes a one-message conversation of `tokens` tokens."""
        return self.writer.write(self.lengths.words(tokens))

    def words(self, tokens: int) -> str:
        """Text of `tokens` tokens inside a conversation."""
        return self.writer.write(self.lengths.more_words(tokens))

    async def step_times(self) -> StepTimes | None:
        """Of the server's last decode steps, None where it does not say."""
        page = await _get(self.client, "/metrics")
        return None if page is None else read_step_times(page.text)

    async def steps(self, since: int = 0) -> dict[str, Any] | None:
        """What the server says of its steps behind number `since`, None where it says nothing."""
        page = await _get(self.client, f"/debug/steps?since={since}")
        return None if page is None else read_steps(page.content)

    async def _count(self, prompt: str) -> int:
        return (await self.complete([user(prompt)], self.settings.answer_tokens)).prompt_tokens

    async def calibrate(self) -> None:
        """Learn how long prompts are; the requests also warm the server up. Raises: BenchmarkError."""
        self.lengths = await calibrate(self._count, self.writer)


@contextlib.asynccontextmanager
async def connect(
    url: str, settings: BenchSettings, *, model: str | None = None, api_key: str | None = None
) -> AsyncIterator[Target]:
    """A target at `url` (without /v1), calibrated. Raises: UnavailableError when no model server answers
    there, BenchmarkError when it cannot be measured."""
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    # Connections are kept: a new one would be part of a first token's latency.
    limits = httpx.Limits(max_connections=None, keepalive_expiry=None)
    timeout = httpx.Timeout(_QUESTION_SECONDS, read=settings.timeout)
    url = url.rstrip("/").removesuffix("/v1")
    try:
        client = httpx.AsyncClient(
            base_url=url, timeout=timeout, limits=limits, headers=headers, trust_env=False
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise UnavailableError(f"{url!r} is not an address: {error}", field="url") from error
    async with client:
        served = await _served(client, url, model)
        target = Target(
            client=client,
            settings=settings,
            model=str(served["id"]),
            context=_context(served),
            version=await _version(client),
        )
        await target.calibrate()
        yield target


async def _served(client: httpx.AsyncClient, url: str, wanted: str | None) -> dict[str, Any]:
    """The entry of `/v1/models` that is measured: the first one, or `wanted`."""
    try:
        response = await client.get("/v1/models")
        models: list[dict[str, Any]] = response.raise_for_status().json()["data"]
        if wanted is None:
            return models[0]
        known = [model for model in models if model["id"] == wanted]
        names = ", ".join(str(model["id"]) for model in models)
    except (httpx.TransportError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise UnavailableError(f"no server answers at {url}: {error}", field="url") from error
    except (httpx.HTTPStatusError, ValueError, LookupError, TypeError) as error:
        raise UnavailableError(f"{url} is not a model server: {error}", field="url") from error
    if not known:
        raise BenchmarkError(f"{url} serves {names}, not {wanted}", field="model")
    return known[0]


def _context(served: dict[str, Any]) -> int | None:
    """Some servers put the limit into the entry, others into an object `meta` in it."""
    meta = served.get("meta")
    for value in (served.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None):
        if isinstance(value, int):
            return value
    return None


async def _version(client: httpx.AsyncClient) -> str | None:
    response = await _get(client, "/version")
    try:
        return None if response is None else str(response.json()["version"])
    except (ValueError, LookupError, TypeError):
        return None


async def _get(client: httpx.AsyncClient, path: str) -> httpx.Response | None:
    try:
        response = await client.get(path, timeout=_QUESTION_SECONDS)
    except httpx.TransportError:
        return None
    return response if response.status_code == 200 else None

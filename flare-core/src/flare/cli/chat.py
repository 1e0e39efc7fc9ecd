"""`flare chat`: talk to a running server in the terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flare.cli.app import app, reports_errors
from flare.errors import UnavailableError

if TYPE_CHECKING:
    import httpx


@app.command()
@reports_errors
def chat(
    message: Annotated[str | None, typer.Argument(help="One question; without it a conversation.")] = None,
    url: Annotated[str, typer.Option(help="Server address.")] = "http://127.0.0.1:8000",
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
) -> None:
    """Chat with a running server; answers stream as they are drawn."""
    import httpx

    history: list[dict[str, str]] = []
    if system:
        history.append({"role": "system", "content": system})
    parameters = {"max_tokens": max_tokens, "temperature": temperature}
    body: dict[str, Any] = {key: value for key, value in parameters.items() if value is not None}
    with httpx.Client(base_url=url, timeout=httpx.Timeout(10, read=None)) as client:
        body["model"] = _model(client, url)
        for question in [message] if message is not None else _questions():
            history.append({"role": "user", "content": question})
            answer = _answer(client, {**body, "messages": history})
            history.append({"role": "assistant", "content": answer})


def _model(client: httpx.Client, url: str) -> str:
    import httpx

    try:
        name: str = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
    except httpx.HTTPError as error:
        raise UnavailableError(f"no server answers at {url}: {error}", field="url") from error
    return name


def _questions() -> Iterator[str]:
    """Lines from the terminal until end of file or an empty interrupt."""
    typer.secho("End with ctrl-D.", dim=True, err=True)
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            typer.echo(err=True)
            return
        if line:
            yield line


def _answer(client: httpx.Client, body: dict[str, Any]) -> str:
    """Stream one answer to standard output, then its speed to standard error; returns the text."""
    stream = {**body, "stream": True, "stream_options": {"include_usage": True}}
    parts: list[str] = []
    usage: dict[str, int] = {}
    started = time.perf_counter()
    first = last = started
    with client.stream("POST", "/v1/chat/completions", json=stream) as response:
        if response.status_code != 200:
            response.read()
            raise UnavailableError(_message(response.json()))
        for line in response.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[len("data: ") :])
            if "error" in event:
                raise UnavailableError(_message(event))
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                if text := choice["delta"].get("content"):
                    last = time.perf_counter()
                    first = first if parts else last
                    parts.append(text)
                    sys.stdout.write(text)
                    sys.stdout.flush()
    sys.stdout.write("\n")
    tokens = usage.get("completion_tokens", 0)
    speed = (tokens - 1) / (last - first) if tokens > 1 and last > first else 0.0
    typer.secho(
        f"{usage.get('prompt_tokens', 0)} prompt tokens, first token {1000 * (first - started):.0f} ms, "
        f"{tokens} tokens at {speed:.1f} tok/s",
        dim=True,
        err=True,
    )
    return "".join(parts)


def _message(body: dict[str, Any]) -> str:
    return str(body.get("error", {}).get("message", body))

"""`flare chat`: talk to a running server in the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from flare.cli.app import app, reports_errors
from flare.errors import FlareError


@app.command()
@reports_errors
def chat(
    message: Annotated[str | None, typer.Argument(help="One question; without it a conversation.")] = None,
    url: Annotated[str, typer.Option(help="Server address.")] = "http://127.0.0.1:8000",
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer in tokens.", show_default="the context")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature.", show_default="the model's")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed and question give the same answer.", show_default="random"),
    ] = None,
) -> None:
    """Chat with a running server; answers stream as they are drawn."""
    from flare.cli.conversation import Server

    parameters = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    body: dict[str, Any] = {key: value for key, value in parameters.items() if value is not None}
    history = [{"role": "system", "content": system}] if system else []
    with Server(url) as server:
        body["model"] = server.model()
        if message is not None:
            _ask(server, body, history, message)
            return
        for question in _questions():
            try:
                _ask(server, body, history, question)
            except FlareError as error:
                # The conversation goes on without the question that could not be answered.
                typer.secho(f"flare: {error}", fg=typer.colors.RED, err=True)


def _questions() -> Iterator[str]:
    """Lines of standard input until its end or an interrupt; a terminal gets a prompt and line editing."""
    interactive = sys.stdin.isatty()
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (input() edits lines once it is imported)
        typer.secho("End with ctrl-D; ctrl-C stops an answer.", dim=True, err=True)
    while True:
        try:
            line = (input("> ") if interactive else input()).strip()
        except (EOFError, KeyboardInterrupt):
            if interactive:
                typer.echo(err=True)
            return
        if line:
            yield line


def _ask(server: Any, body: dict[str, Any], history: list[dict[str, str]], question: str) -> None:
    """Stream the answer to standard output and its speed to standard error; both messages join `history`."""
    from flare.cli.conversation import Answer

    asked = [*history, {"role": "user", "content": question}]
    answer = Answer()
    try:
        for text in server.stream({**body, "messages": asked}, answer):
            sys.stdout.write(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        typer.secho(" (stopped)", dim=True, err=True, nl=False)
    finally:
        if answer.parts:
            sys.stdout.write("\n")
            sys.stdout.flush()
    history[:] = [*asked, {"role": "assistant", "content": "".join(answer.parts)}]
    typer.secho(answer.summary(), dim=True, err=True)

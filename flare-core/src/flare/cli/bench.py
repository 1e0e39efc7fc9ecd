"""`flare bench`: measure a server, or compare two measurements."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flare.cli.app import app, reports_errors
from flare.errors import FlareError

if TYPE_CHECKING:
    from flare.bench import BenchResult, BenchSettings


class Scenario(StrEnum):
    """What is measured."""

    COLD = "cold"
    DECODE = "decode"
    APPEND = "append"
    BRANCH = "branch"
    EXTEND = "extend"
    REPEAT = "repeat"
    MIXED = "mixed"


class Api(StrEnum):
    """Which endpoint carries the prompts."""

    CHAT = "chat"
    COMPLETIONS = "completions"


@app.command()
@reports_errors
def bench(
    target: Annotated[
        str | None, typer.Argument(help="Address of any OpenAI-compatible server, or a core file to serve.")
    ] = None,
    scenario: Annotated[
        list[Scenario] | None, typer.Option(help="Measure this one; may be repeated.", show_default="all")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, help="Most repetitions of a case.")] = 5,
    duration: Annotated[
        float, typer.Option(min=0, help="Seconds of a scenario after which no repetition begins.")
    ] = 15.0,
    prompt_tokens: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Prompt length of cold; may be repeated. The longest is the long prompt of mixed.",
            show_default="128, 512, 1024",
        ),
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Streams of decode at once; may be repeated.", show_default="1, 2, 4"),
    ] = None,
    decode_prompt_tokens: Annotated[int, typer.Option(min=1, help="Prompt of a stream of decode.")] = 64,
    output_tokens: Annotated[int, typer.Option(min=2, help="Output of a stream of decode.")] = 64,
    prefix_tokens: Annotated[
        int, typer.Option(min=1, help="First turn of append, prefix of branch and extend, prompt of repeat.")
    ] = 512,
    turns: Annotated[int, typer.Option(min=1, help="Turns of append.")] = 4,
    append_tokens: Annotated[
        int, typer.Option(min=1, help="What a turn of append, a branch or extend adds.")
    ] = 128,
    branches: Annotated[int, typer.Option(min=1, help="Continuations of branch.")] = 4,
    endpoint: Annotated[Api, typer.Option(help="API that carries the prompts.")] = Api.CHAT,
    body: Annotated[
        str | None, typer.Option(help="JSON object merged into every request; null removes a field.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name.", show_default="the first")] = None,
    api_key: Annotated[str | None, typer.Option(help="Sent as a bearer token.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds of silence that fail a request.")] = 120.0,
    start: Annotated[
        str | None, typer.Option(help="Command that starts the server at the address; stopped afterwards.")
    ] = None,
    ready_path: Annotated[
        str, typer.Option(help="With --start: answers 200 when the server is ready.")
    ] = "/health",
    label: Annotated[str | None, typer.Option(help="Name in tables.", show_default="the model's")] = None,
    version: Annotated[
        list[str] | None, typer.Option(help="NAME=VERSION to record; may be repeated.")
    ] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write every value to this file.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Compare two files of --json instead.")
    ] = None,
) -> None:
    """Measure a server: first tokens, decoding, conversations, branches, repeats and mixed load."""
    if compare is not None:
        if target is not None:
            raise typer.BadParameter("--compare takes two files and no target")
        _compare(*compare)
        return
    if target is None:
        raise typer.BadParameter("give the address of a server, or a core file")
    from flare.bench import BenchSettings, Endpoint, write_result
    from flare.bench.settings import DEFAULT_BODY

    chosen: dict[str, Any] = {}
    if prompt_tokens:
        chosen["prompt_tokens"] = tuple(prompt_tokens)
    if concurrency:
        chosen["concurrency"] = tuple(concurrency)
    settings = BenchSettings(
        requests=requests,
        duration=duration,
        timeout=timeout,
        endpoint=Endpoint(endpoint.value),
        body=DEFAULT_BODY | _object(body),
        decode_prompt_tokens=decode_prompt_tokens,
        output_tokens=output_tokens,
        prefix_tokens=prefix_tokens,
        turns=turns,
        append_tokens=append_tokens,
        branches=branches,
        **chosen,
    )
    named = {"label": label, "model": model, "api_key": api_key, "versions": _versions(version or [])}
    result = _measure(target, settings, list(scenario or Scenario), named, start, ready_path)
    if as_json is not None:
        write_result(result, as_json)
    _print(result)
    if result.failures:
        raise typer.Exit(1)


def _measure(
    target: str,
    settings: BenchSettings,
    scenarios: list[Scenario],
    named: dict[str, Any],
    start: str | None,
    ready_path: str,
) -> BenchResult:
    """Start what has to be started, and measure it."""
    import asyncio
    import contextlib
    import signal

    from flare.bench import measure
    from flare.bench.launch import Started, started_command, started_core
    from flare.bench.result import Figure, ScenarioResult

    # A terminated client stops the server that it started, like an interrupted one; a shell that puts it into
    # the background makes it deaf to interrupts.
    former = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        with contextlib.ExitStack() as stack:
            server: Started | None = None
            if start is not None:
                server = stack.enter_context(started_command(start, target, ready_path))
            elif "://" not in target:
                server = stack.enter_context(started_core(_core(target), "--debug-endpoints"))
            url = target if server is None else server.url
            result = asyncio.run(measure(url, settings, scenarios=scenarios, progress=_say_progress, **named))
    finally:
        signal.signal(signal.SIGTERM, former)
    if server is not None:
        ready = Figure(
            case="process", measure="start to ready", unit="s", better="lower", values=[server.seconds]
        )
        result.scenarios = {
            "start": ScenarioResult(figures=[ready], seconds=server.seconds)
        } | result.scenarios
    return result


def _core(target: str) -> Path:
    path = Path(target)
    if not path.is_file():
        raise FlareError(
            f"{target} is neither an address (http://HOST:PORT) nor a core file, "
            "which `flare prepare NAME` makes",
            field="target",
        )
    return path


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise typer.BadParameter(f"--body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter("--body is not a JSON object")
    return value


def _versions(pairs: list[str]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or not value:
            raise typer.BadParameter(f"--version: {pair!r} is not NAME=VERSION")
        versions[name] = value
    return versions


def _say_progress(name: str) -> None:
    typer.secho(f"measuring {name}", dim=True, err=True)


def _print(result: BenchResult) -> None:
    from flare.bench import print_result

    print_result(result)


def _compare(first: Path, second: Path) -> None:
    from flare.bench import compare, print_comparison, read_result

    comparison = compare(read_result(first), read_result(second))
    for warning in comparison.warnings:
        typer.echo(f"note: {warning}", err=True)
    print_comparison(comparison)

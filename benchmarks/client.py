"""Measure any server with OpenAI's `/v1/completions`, or compare two measurements.

    python benchmarks/client.py --url http://127.0.0.1:8000 --label Flare --output results/flare.json
    python benchmarks/client.py --start "flare run CORE" --ready-url http://127.0.0.1:8000/ready ...
    python benchmarks/client.py --compare results/flare.json results/vllm-cpu.json

Scenarios: `cold` is the latency of the first token of a prompt that no cache has seen; `decode` is the speed
of some streams at once while all of them decode. README.md beside this file describes both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from loadtest.errors import BenchmarkError
from loadtest.launch import started_server
from loadtest.machine import describe_machine
from loadtest.prompts import PromptWriter
from loadtest.report import comparison_table, differences, result_table
from loadtest.scenarios import Target, cold, decode

SCENARIOS = ("cold", "decode")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"))
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address without /v1")
    parser.add_argument("--model", help="default: the first one in /v1/models")
    parser.add_argument("--label", default="server", help="name of the server in tables")
    parser.add_argument("--version", action="append", default=[], metavar="NAME=VERSION", type=_pair)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--start", metavar="COMMAND", help="start the server, and stop it afterwards")
    parser.add_argument("--ready-url", help="with --start: answers 200 when the server is ready")
    parser.add_argument("--ready-timeout", type=float, default=900.0, help="seconds")
    parser.add_argument("--scenarios", nargs="*", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--cold-tokens", type=int, nargs="+", default=[360], help="prompt lengths")
    parser.add_argument("--cold-repeats", type=int, default=10)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--decode-prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--decode-repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=20)
    parser.add_argument("--top-p", type=float, default=0.95)
    options = parser.parse_args(arguments)
    if (options.start is None) != (options.ready_url is None):
        parser.error("--start and --ready-url go together")
    return options


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VERSION")
    return name, value


async def run_scenarios(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Model name and results of the chosen scenarios. Raises: BenchmarkError."""
    results: dict[str, Any] = {}
    sampling = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p")}
    # Connections are kept: a new one would be part of a first token's latency.
    limits = httpx.Limits(max_connections=None, keepalive_expiry=None)
    async with httpx.AsyncClient(
        base_url=options.url, timeout=httpx.Timeout(10, read=600), limits=limits, trust_env=False
    ) as client:
        model = options.model or await _first_model(client)
        target = Target(client, model, sampling, PromptWriter())
        if "cold" in options.scenarios:
            results["cold"] = {
                str(tokens): await cold(target, prompt_tokens=tokens, repeats=options.cold_repeats)
                for tokens in options.cold_tokens
            }
        if "decode" in options.scenarios:
            results["decode"] = {
                str(streams): await decode(
                    target,
                    concurrency=streams,
                    prompt_tokens=options.decode_prompt_tokens,
                    output_tokens=options.output_tokens,
                    repeats=options.decode_repeats,
                )
                for streams in options.concurrency
            }
    return model, results


async def _first_model(client: httpx.AsyncClient) -> str:
    response = await client.get("/v1/models")
    if response.status_code != 200:
        raise BenchmarkError(f"/v1/models answered {response.status_code}: {response.text}")
    name: str = response.json()["data"][0]["id"]
    return name


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that a result file holds. Raises: BenchmarkError."""
    machine = describe_machine()
    results: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if options.start:
            seconds = stack.enter_context(
                started_server(options.start, options.ready_url, options.ready_timeout)
            )
            results["start"] = {"seconds": seconds, "command": options.start}
        model, measured = asyncio.run(run_scenarios(options))
    settings = (
        "cold_repeats",
        "decode_prompt_tokens",
        "output_tokens",
        "decode_repeats",
        "temperature",
        "top_k",
        "top_p",
    )
    return {
        "label": options.label,
        "model": model,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": dict(options.version),
        "settings": {name: getattr(options, name) for name in settings},
        "results": results | measured,
    }


def compare(first: Path, second: Path) -> None:
    """Print two result files side by side, and on standard error what differs in how they were made."""
    results = [json.loads(path.read_text()) for path in (first, second)]
    for difference in differences(*results):
        print(f"note: {difference}", file=sys.stderr)
    print(comparison_table(*results))


def main() -> int:
    """Measure or compare; 1 when a measurement would mean nothing."""
    options = parse_arguments()
    if options.compare:
        compare(*options.compare)
        return 0
    # A terminated client stops the server that it started, like an interrupted one; a shell that puts it into
    # the background makes it deaf to interrupts.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        result = measure(options)
    except* (BenchmarkError, httpx.TransportError) as group:
        for error in _leaves(group):
            print(f"error: {error or type(error).__name__}", file=sys.stderr)
        return_code = 1
    else:
        print(result_table(result))
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(result, indent=2) + "\n")
        return_code = 0
    return return_code


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


if __name__ == "__main__":
    sys.exit(main())

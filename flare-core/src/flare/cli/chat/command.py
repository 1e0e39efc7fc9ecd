"""The options of `flare chat`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flare.cli.app import app, reports_errors
from flare.cli.chat.display import Display, Reasoning
from flare.errors import ExecutionError


@app.command()
@reports_errors
def chat(
    message: Annotated[str | None, typer.Argument(help="One question; without it a conversation.")] = None,
    url: Annotated[str, typer.Option(help="Server address.")] = "http://127.0.0.1:8000",
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Image of the first question: a file, or a data: or web address; may be repeated.",
            show_default="none",
        ),
    ] = None,
    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Tools that the model may call: OpenAI definitions, one or a list."
        ),
    ] = None,
    tool_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run this for every call: arguments on standard input, FLARE_TOOL_NAME in the environment; "
            "what it prints is the result.",
            show_default="you type results",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run it without asking.")] = False,
    tool_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that it has for a call.")] = 60.0,
    max_tool_rounds: Annotated[
        int, typer.Option(min=0, help="How many times results are sent back for one question.")
    ] = 20,
    reasoning: Annotated[
        Reasoning, typer.Option(help="Reasoning: all of it, a line that counts it, or nothing.")
    ] = Reasoning.SHOW,
    effort: Annotated[
        str | None, typer.Option(help="How much to reason; none is not to.", show_default="the model's")
    ] = None,
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
    api_key: Annotated[str | None, typer.Option(help="Sent as a bearer token.")] = None,
) -> None:
    """Chat with a running server; answers stream as they are drawn."""
    if tool_command is not None:
        if tools is None:
            raise typer.BadParameter("--tool-command answers calls of --tools")
        if not yes and not sys.stdin.isatty():
            raise typer.BadParameter("--tool-command asks before each run, which takes a terminal; or --yes")
    from flare.cli.chat.client import Server
    from flare.cli.chat.history import History
    from flare.cli.chat.images import image_part
    from flare.cli.chat.lines import Lines
    from flare.cli.chat.loop import Chat
    from flare.cli.chat.results import CommandResults, Results, TypedResults
    from flare.cli.chat.tool_command import ToolCommand
    from flare.cli.chat.tools import read_tools

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character shows another
    offered = None if tools is None else read_tools(tools)
    chosen = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "reasoning_effort": effort,
        "tools": offered,
    }
    body: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    images = [image_part(one) for one in image or ()]
    lines, display = Lines(), Display(reasoning)
    results: Results = TypedResults(lines, display)
    if tool_command is not None:
        names = [tool["function"]["name"] for tool in offered or ()]
        results = CommandResults(ToolCommand(tool_command, tool_timeout), names, yes, lines, display)
    with Server(url, api_key) as server:
        model = server.model()
        if images:
            model.require("images")
        if offered:
            model.require("tools")
        body["model"] = model.name
        conversation = Chat(
            server, model, lines, display, History(system), results, body, max_tool_rounds, images
        )
        if message is None:
            conversation.run()
        elif not conversation.ask(message):
            raise ExecutionError("the answer waits for results of calls")

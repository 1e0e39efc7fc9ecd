"""A model that has two commands run, one behind the other, and then says what it saw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agent_model import call
from live import END, TOKENIZER

from flare.engine.messages import Submit
from flare.testing.scripted_engine import Script

COMMANDS = ("echo one-$((40+2))", "echo two-$((3*3))")
RESULTS = ("one-42", "two-9")
DONE = "Both ran."
_SHELLS = {"Bash": "command", "bash": "command", "exec_command": "cmd", "shell_command": "command"}
"""Names of the tools with which agents run a command, and of their arguments for it."""


def two_tools(submit: Submit) -> Script:
    """A script of the server's engine: the next step of the task, after the prompt."""
    prompt = TOKENIZER.decode(submit.prompt, skip_special=False)
    return Script(tokens=[*TOKENIZER.encode(_answer(prompt)), END], batch=4)


def _answer(prompt: str) -> str:
    shell = next((name for name in _offered(prompt) if name in _SHELLS), None)
    if shell is None:
        return "A title"
    results = prompt.count("\ntool: ")
    if results < len(COMMANDS):
        arguments = {_SHELLS[shell]: COMMANDS[results], "description": "a command"}
        return f"<think>Number {results}.</think>I run it.\n" + call(shell, **arguments)
    seen = [result for result in RESULTS if result in prompt]
    return f"{DONE} {' '.join(seen)}"


def _offered(prompt: str) -> Iterator[str]:
    first = prompt.partition("\n")[0]
    if first.startswith("TOOLS "):
        definitions: list[dict[str, Any]] = json.loads(first.removeprefix("TOOLS "))
        yield from (definition["function"]["name"] for definition in definitions)

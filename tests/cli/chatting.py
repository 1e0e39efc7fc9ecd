"""`flare chat` in this process, and a model for it to talk to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_model import call
from click.testing import Result
from live import END, TOKENIZER, LiveServer
from typer.testing import CliRunner

from flare.cli import app
from flare.engine.messages import Submit
from flare.testing.scripted_engine import Script

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def chat(url: str, *arguments: str | Path, stdin: str | bytes = "") -> Result:
    """Run it to its end against the server at `url`."""
    return CliRunner().invoke(app, ["chat", "--url", url, *map(str, arguments)], input=stdin)


def prompts(server: LiveServer) -> list[str]:
    """What the model was asked, in order."""
    submissions = server.engine.counters.submissions
    return [TOKENIZER.decode(submit.prompt, skip_special=False) for submit in submissions]


def written(*answers: str, **options: Any) -> Any:
    """A script for a server's engine: these answers, one request after the other, the last one again and
    again."""
    left = list(answers)

    def script(submit: Submit) -> Script:
        text = left.pop(0) if len(left) > 1 else left[0]
        return Script(tokens=[*TOKENIZER.encode(text), END], **options)

    return script


WEATHER_CALLS = (
    "<think>I look.</think>\n\nA moment.\n" + call("weather", city="Bern") + call("weather", city="Rom")
)

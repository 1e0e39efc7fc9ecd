"""The reference pages mention everything that exists."""

from pathlib import Path

import pytest
import typer

from flare.cli import app
from flare.server.requests import ChatRequest, CompletionRequest, StreamOptions

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("model", [ChatRequest, CompletionRequest, StreamOptions])
def test_every_request_field_is_on_the_api_page(model: type) -> None:
    page = (DOCS / "api.md").read_text()
    missing = [name for name in model.model_fields if f"`{name}`" not in page]  # type: ignore[attr-defined]
    assert missing == []


def test_every_command_and_option_is_on_the_cli_page() -> None:
    page = (DOCS / "cli.md").read_text()
    group = typer.main.get_command(app)
    missing = [] if "`flare --version`" in page else ["--version"]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if f"flare {name}" not in page:
            missing.append(name)
        missing += [
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--") and option != "--help" and option not in page
        ]
    assert missing == []

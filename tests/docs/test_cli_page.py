"""docs/cli.md names every command and option, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from flare.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def section(command: str) -> str:
    return re.split(rf"^## flare {command}\b.*$", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]


def test_every_command_has_a_section() -> None:
    assert set(re.findall(r"^## flare ([\w-]+)", PAGE, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_table_of_a_command_holds_its_options(command: str) -> None:
    options = {
        name
        for parameter in COMMANDS[command].params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name != "--help"
    }
    cells = re.findall(r"^\| (`-[^|]*) \|", section(command), re.MULTILINE)

    assert {name for cell in cells for name in re.findall(r"`(-[\w-]+)`", cell)} == options


def test_the_version_option_is_listed() -> None:
    assert "flare --version" in PAGE

"""The tables of options in docs/cli.md, from the commands themselves. Run it to write them.

A table stands between `<!-- options: COMMAND -->` and `<!-- end -->`; the text around it is written by
hand. The tests fail when a table is not what the code says.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import typer

from flare.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
_TABLE = re.compile(r"(<!-- options: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands() -> dict[str, Any]:
    """Every command of `flare`."""
    return dict(group().commands)


def group() -> Any:
    """`flare` itself, as click sees it."""
    return typer.main.get_command(app)


def current(page: str) -> str:
    """The page with its tables as the code has them. Raises KeyError for a command that does not exist."""
    found = commands()
    return _TABLE.sub(lambda part: part[1] + table(found[part[2]]) + part[3], page)


def options(command: Any) -> list[Any]:
    """The options of a command, without those that click adds."""
    return [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]


def table(command: Any) -> str:
    """Markdown of a command's options."""
    rows = ["| option | default | |", "| --- | --- | --- |"]
    for option in options(command):
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        rows.append(f"| {names} | {_default(option)} | {_meaning(option)} |")
    return "\n" + "\n".join(rows) + "\n\n"


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    value = option.default
    if option.is_flag:
        return "on" if value else "off"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if value is not None else "none"


def _meaning(option: Any) -> str:
    text = str(option.help).replace("|", "\\|")
    if choices := _choices(option.type_descriptor.annotation):
        text += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    if option.envvar:
        text += f" Environment: `{option.envvar}`."
    return text


def _choices(annotation: Any) -> list[str]:
    """Values of the enumeration inside an annotation such as `list[Scenario] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [member.value for member in annotation]
    return [choice for part in get_args(annotation) for choice in _choices(part)]


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text()))

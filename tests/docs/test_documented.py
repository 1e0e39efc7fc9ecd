"""Everything that a user can name is documented, and nothing else is.

One table: where the code has the names, where the documentation has them, and the same names with one more,
planted in a copy of what the code has, which every check must find.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cli_tables
import contract_reference
import pytest
import typer

import flare.contract
from flare.contract import ContractModel
from flare.device import LoadOptions
from flare.engine.client import EngineOptions
from flare.engine.supervisor import RestartPolicy
from flare.prepare import CapacityRequest
from flare.recipes import hookspecs
from flare.scheduler import Settings
from flare.server import ServerSettings
from flare.server.metric_table import METRICS, MetricRow

ROOT = Path(__file__).parents[2]
SOURCES = (*ROOT.glob("flare-*/src"), *ROOT.glob("examples/*/src"))
Names = set[str]


@dataclass(frozen=True)
class Check:
    """`names` of `code()`, and of `planted()`, against `written` in a section of a page; `complete` pages
    have nothing but these."""

    page: str
    section: str | None
    names: Callable[[Any], Names]
    written: Callable[[str], Names]
    code: Callable[[], Any]
    planted: Callable[[], Any]
    complete: bool = True

    def problems(self, source: Any) -> list[str]:
        """What is not documented, and what is but does not exist."""
        text = (ROOT / "docs" / self.page).read_text()
        if self.section is not None:
            text = text.split(f"\n## {self.section}\n")[1].split("\n## ")[0]
        names, written = self.names(source), self.written(text)
        assert names
        return [f"undocumented: {name}" for name in sorted(names - written)] + [
            f"does not exist: {name}" for name in sorted(written - names) if self.complete
        ]


# Names in the code.


def fields(settings: type) -> Names:
    """`name = default` of a dataclass."""
    return {f"{field.name} = {_default(field)}" for field in dataclasses.fields(settings)}


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.default_factory.__name__}()"
    default = field.default
    return default.value if isinstance(default, enum.Enum) else repr(default)


def hooks(specification: Any) -> Names:
    """Functions that are hooks."""
    return {name for name in vars(specification) if name.startswith("flare_")}


def metrics(rows: Iterable[MetricRow]) -> Names:
    """Names as a scraper sees them."""
    return {row.name for row in rows}


def variables(sources: Iterable[str]) -> Names:
    """Environment variables: what is asked of an environment, and strings that look like one of ours."""
    return {name for source in sources for node in ast.walk(ast.parse(source)) for name in _variables(node)}


def _variables(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if re.fullmatch(r"FLARE_[A-Z0-9_]+", text):
            yield text
        case (
            ast.Subscript(value=place, slice=ast.Constant(value=str(name)))
            | ast.Call(
                func=ast.Attribute(value=place, attr="get" | "pop" | "setdefault"),
                args=[ast.Constant(value=str(name)), *_],
            )
        ) if ast.unparse(place).endswith(("environ", "environment")) and name.isupper():
            yield name
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            if ast.unparse(function).endswith("getenv"):
                yield name


def options(commands: dict[str, Any]) -> Names:
    """`command` and `command --option`."""
    return set(commands) | {
        f"{name} {option}"
        for name, command in commands.items()
        for parameter in cli_tables.options(command)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def models(named: dict[str, Any]) -> Names:
    """`Class` and `Class.member` of contract models and enumerations."""
    found: Names = set()
    for name, cls in named.items():
        if isinstance(cls, type) and issubclass(cls, ContractModel) and cls is not ContractModel:
            found |= {name, *(f"{name}.{field}" for field in cls.model_fields)}
        elif isinstance(cls, type) and hasattr(cls, "__members__"):
            found |= {name, *(f"{name}.{member}" for member in cls.__members__)}
    return found


def rooms(package: Path) -> Names:
    """Packages inside a package."""
    return {file.parent.name for file in package.glob("*/__init__.py")}


# Names in the documentation.


def first_cells(text: str) -> Names:
    """First cell of every row of its tables."""
    return set(re.findall(r"^\| `([^`|]+)` \|", text, re.MULTILINE))


def two_cells(text: str) -> Names:
    """First and second cell of every row."""
    return {" = ".join(row) for row in re.findall(r"^\| `([^`|]+)` \| `([^`|]+)` \|", text, re.MULTILINE)}


def code_words(pattern: str) -> Callable[[str], Names]:
    """Everything between backticks that begins with the pattern."""
    return lambda text: set(re.findall(rf"`({pattern}\w+)", text))


def command_sections(text: str) -> Names:
    """Headings `flare COMMAND`, and the options in the tables below them."""
    found: Names = set()
    for section in text.split("\n## flare ")[1:]:
        command = re.split(r"\s", section, maxsplit=1)[0]
        cells = re.findall(r"^\| (`-[^|]*) \|", section, re.MULTILINE)
        found |= {command, *(f"{command} {o}" for cell in cells for o in re.findall(r"`(-[\w-]+)`", cell))}
    return found


def reference_tables(text: str) -> Names:
    """Headings and first cells of what the site shows in place of the mark."""
    assert contract_reference.MARK in text
    found: Names = set()
    for section in contract_reference.reference().split("\n### ")[1:]:
        name = section.split(" ", 1)[0]
        found |= {name, *(f"{name}.{cell}" for cell in first_cells(section))}
    return found


# The table, and what is planted.


def one_more_field(settings: type) -> Callable[[], type]:
    return lambda: dataclasses.make_dataclass(
        "Planted",
        [("planted", int, dataclasses.field(default=1, kw_only=True))],
        bases=(settings,),
        frozen=True,
    )


def sources() -> list[str]:
    return [path.read_text() for root in SOURCES for path in root.rglob("*.py")]


def one_more_option() -> dict[str, Any]:
    planted = typer.Typer(add_completion=False)

    @planted.command()
    def recipes(as_json: bool = typer.Option(False, "--json"), planted: int = 1) -> None: ...

    return cli_tables.commands() | {"recipes": typer.main.get_command(planted)}


def one_more_room() -> Any:
    found = (ROOT / "flare-core/src/flare").glob("*/__init__.py")
    return SimpleNamespace(glob=lambda _: [*found, Path("planted/__init__.py")])


class PlantedModel(ContractModel):
    planted: int


def settings(section: str, cls: type) -> Check:
    return Check("settings.md", section, fields, two_cells, lambda: cls, one_more_field(cls))


CHECKS = {
    "server settings": settings("ServerSettings", ServerSettings),
    "scheduler settings": settings("Settings of the scheduler", Settings),
    "engine options": settings("EngineOptions", EngineOptions),
    "load options": settings("LoadOptions", LoadOptions),
    "restart policy": settings("RestartPolicy", RestartPolicy),
    "capacities": settings("CapacityRequest", CapacityRequest),
    "environment": Check(
        "settings.md",
        "Environment",
        variables,
        first_cells,
        sources,
        lambda: [*sources(), "import os\nos.environ.get('FAR_PLANTED')"],
    ),
    "environment of ours": Check(
        "settings.md",
        "Environment",
        variables,
        first_cells,
        sources,
        lambda: [*sources(), "X = 'FLARE_PLANTED'"],
    ),
    "hooks": Check(
        "recipes.md",
        "Hooks",
        hooks,
        first_cells,
        lambda: hookspecs,
        lambda: SimpleNamespace(**vars(hookspecs), flare_planted=print),
    ),
    "metrics": Check(
        "operations.md",
        "Metrics",
        metrics,
        code_words("(?:flare:|process_)"),
        lambda: METRICS,
        lambda: [*METRICS, MetricRow("flare:planted_total", "counter", "tokens", (), "Planted.")],
    ),
    "commands": Check("cli.md", None, options, command_sections, cli_tables.commands, one_more_option),
    "rooms": Check(
        "architecture.md", "Rooms", rooms, first_cells, lambda: ROOT / "flare-core/src/flare", one_more_room
    ),
    "contract": Check(
        "contract.md",
        None,
        models,
        reference_tables,
        lambda: vars(flare.contract),
        lambda: {**vars(flare.contract), "Planted": PlantedModel},
        complete=False,  # models that are only parts of others are not exported
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_the_code_has_is_documented(name: str) -> None:
    assert CHECKS[name].problems(CHECKS[name].code()) == []


@pytest.mark.parametrize("name", CHECKS)
def test_one_planted_thing_is_found(name: str) -> None:
    problems = CHECKS[name].problems(CHECKS[name].planted())

    assert problems
    assert all("planted" in problem.lower() and problem.startswith("undocumented") for problem in problems)

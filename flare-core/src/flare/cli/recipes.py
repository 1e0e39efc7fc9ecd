"""`flare recipes`: which models can be prepared, by which recipes, and why others cannot."""

from __future__ import annotations

import json
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from flare.cli.app import app, reports_errors
from flare.errors import FlareError

if TYPE_CHECKING:
    from flare.recipes import RecipeRow

FIELDS = ("name", "recipe", "distribution", "version", "api_version", "status")


@app.command()
@reports_errors
def recipes(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the models that can be prepared, and the recipes that prepare them."""
    from flare.recipes import discover

    registry = discover()
    rows = registry.rows
    if as_json:
        typer.echo(json.dumps([{name: getattr(row, name) for name in FIELDS} for row in rows], indent=2))
    elif rows:
        _print(rows)
    else:
        typer.echo("No recipe is installed or allowed. Recipes are packages: pip install flare-recipe-NAME")
    if registry.strict:
        _insist(rows)


def _print(rows: tuple[RecipeRow, ...]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Piped output keeps one line per row: it is read by grep as often as by people.
    console = Console() if sys.stdout.isatty() else Console(width=400)
    table = Table("model", "recipe", "distribution", "API", "status", box=None)
    for row in rows:
        package = f"{row.distribution} {row.version}"
        cells = (row.name, row.recipe or "", package, str(row.api_version or ""), row.status)
        table.add_row(*map(Text, cells))
    console.print(table)


def _insist(rows: tuple[RecipeRow, ...]) -> None:
    """Strict mode: whatever cannot be used is an error, shown with its traceback."""
    unusable = [row for row in rows if row.state != "ok"]
    for row in unusable:
        typer.echo(f"\n{row.name} from {row.distribution} {row.version}: {row.status}", err=True)
        if row.error is not None:
            traceback.print_exception(row.error)
    if unusable:
        names = ", ".join(dict.fromkeys(row.name for row in unusable))
        raise FlareError(f"FLARE_STRICT_RECIPES: not usable: {names}", field="FLARE_STRICT_RECIPES")

"""`flare recipes`: which recipes are installed and which models they prepare."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flare.cli.app import app, reports_errors


@app.command()
@reports_errors
def recipes(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List installed recipes and the models they prepare."""
    from rich.console import Console
    from rich.table import Table

    from flare.recipes import discover

    rows = discover().rows
    if as_json:
        fields = [
            {
                "name": row.name,
                "distribution": row.distribution,
                "version": row.version,
                "status": row.status,
                "reason": row.reason,
                "models": [model.name for model in row.descriptor.models] if row.descriptor else [],
            }
            for row in rows
        ]
        typer.echo(json.dumps(fields, indent=2))
        return
    if not rows:
        typer.echo("No recipe is installed. Recipes are Python packages: pip install flare-recipe-NAME")
        return
    table = Table("recipe", "models", "distribution", "status", box=None)
    for row in rows:
        models = ", ".join(model.name for model in row.descriptor.models) if row.descriptor else ""
        status = row.status if row.reason is None else f"{row.status}: {row.reason}"
        table.add_row(row.name, models, f"{row.distribution} {row.version}", status)
    Console().print(table)

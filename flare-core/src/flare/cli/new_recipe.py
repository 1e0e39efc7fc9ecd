"""`flare new-recipe`: a complete recipe package to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flare.cli.app import app, reports_errors


@app.command("new-recipe")
@reports_errors
def new_recipe(
    name: Annotated[str, typer.Argument(help="Lower case, for example my-model.")],
    output: Annotated[
        Path,
        typer.Option(help="Directory to write flare-recipe-NAME in.", show_default="the current directory"),
    ] = Path(),
) -> None:
    """Write a recipe package that prepares and serves a tiny model, to be adapted to another one."""
    from flare.authoring import write_recipe_package

    path = write_recipe_package(name, output)
    typer.echo(
        f"{path}\nInstall it with `pip install -e '{path}[test]'`, run `pytest` in it, then adapt the lines "
        f"that `grep -rn CHANGE {path}` lists."
    )

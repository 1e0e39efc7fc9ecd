"""The typer application and its error boundary."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import typer

from flare import __version__
from flare.cli.visible import visible
from flare.errors import FlareError, PluginError

P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    name="flare",
    help="Prepare a language model once into a runtime core; serve the core to agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Typed errors, and what the operating system refuses (a missing file, a full disk), become one line on
    standard error and exit status 1, after the traceback of a plugin that failed; bugs keep theirs."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except FlareError as error:
            if isinstance(error, PluginError) and error.__cause__ is not None:
                traceback.print_exception(error.__cause__)  # the plugin's author needs it
            typer.secho(f"flare: {visible(str(error))}", fg=typer.colors.RED, err=True)
            raise typer.Exit(1) from error
        except BrokenPipeError:
            raise  # the reader of our output left: typer ends quietly
        except OSError as error:
            place = "" if error.filename is None else f"{error.filename}: "
            typer.secho(f"flare: {visible(place)}{error.strerror or error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(1) from error

    return wrapped


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flare {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# Commands register themselves on import; each module is light.
from flare.cli import bench, chat, inspect, new_recipe, prepare, recipes, run, verify  # noqa: E402, F401

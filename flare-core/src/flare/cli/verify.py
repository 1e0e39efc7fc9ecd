"""`flare verify`: is a core whole, for this machine, and true to itself?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flare.cli.app import app, reports_errors


@app.command()
@reports_errors
def verify(
    core: Annotated[Path, typer.Argument(help="A core file made by `flare prepare`.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the checks and their numbers as JSON.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Compute threads of a CPU core.", show_default="all cores")
    ] = None,
) -> None:
    """Check a core: file, identity, checksums, references, load, and the answer recorded at preparation."""
    from flare.device import LoadOptions
    from flare.errors import CoreError
    from flare.verify import Verification

    if not core.is_file():
        raise CoreError(f"{core} is not a file" if core.exists() else f"{core} does not exist", field="core")
    verification = Verification(
        core,
        options=LoadOptions(threads=threads),
        on_check=None if as_json else lambda check: typer.echo(check.line),
    )
    try:
        report = verification.run()
    finally:
        verification.close()
    if as_json:
        typer.echo(json.dumps(report.document(), indent=2))
    report.require()

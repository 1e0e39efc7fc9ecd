"""`flare inspect`: what a core promises, without loading it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flare.cli.app import app, reports_errors
from flare.cli.inspect_plan import show_plan

if TYPE_CHECKING:
    from flare.contract import Capacities, PreparedContract


@app.command()
@reports_errors
def inspect(
    core: Annotated[Path | None, typer.Argument(help="A core file.", show_default=False)] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of a core: the state of this model of `flare recipes`, as it is published.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show capacities, geometry, programs, memory ledger, identity, retained and replaced modules."""
    if (core is None) == (plan is None):
        raise typer.BadParameter("give a core file, or --plan and a model")
    if plan is not None:
        show_plan(plan, as_json)
        return
    assert core is not None
    from flare.corefile import CoreReader, core_digest, read_contract, totals

    with CoreReader(core) as reader:
        contract = read_contract(reader)
        digest = core_digest(reader)
        roles = {role.value: total.nbytes for role, total in totals(reader).items()}
    if as_json:
        document = {
            "file": {"path": str(core), "bytes": core.stat().st_size, "digest": digest, "roles": roles},
            "contract": contract.model_dump(mode="json"),
        }
        typer.echo(json.dumps(document, indent=2))
        return
    _print(contract, digest, roles)


def _print(contract: PreparedContract, digest: str, roles: dict[str, int]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from flare.prepare.plan import format_bytes

    # Piped output keeps one line per value: it is read by grep as often as by people.
    console = Console() if sys.stdout.isatty() else Console(width=400)
    identity, provenance, capacities = contract.identity, contract.provenance, contract.capacities

    def section(title: str, rows: dict[str, object]) -> None:
        console.print(f"\n[bold]{title}[/bold]")
        table = Table(show_header=False, box=None, padding=(0, 2))
        for key, value in rows.items():
            table.add_row(escape(key), escape(str(value)))
        console.print(table)

    section(
        "Identity",
        {
            "device": f"{identity.device} ({identity.instruction_set or 'any'})",
            "world size": identity.world_size,
            "fingerprint": identity.fingerprint[:16],
            "content": digest[:16],
            "versions": ", ".join(f"{k} {v}" for k, v in identity.versions.items()),
        },
    )
    section(
        "Provenance (not read at run time)",
        {
            "model": provenance.model,
            "recipe": f"{provenance.recipe} ({provenance.recipe_version})",
            "recipe descriptor": provenance.recipe_package.descriptor[:16]
            if provenance.recipe_package
            else "unknown",
            "checkpoint": provenance.checkpoint,
            "created": provenance.created,
        },
    )
    section(
        "Capacities",
        {
            "context": f"{capacities.context} tokens",
            "concurrency": capacities.concurrency,
            "pages": f"{capacities.pages} of {contract.page.page_tokens} tokens, "
            f"{format_bytes(contract.page.nbytes)} each, up to {capacities.addressable_pages}",
            "rows": f"{capacities.rows} of {format_bytes(contract.row.nbytes)} "
            f"({capacities.snapshot_rows} for snapshots), up to {capacities.addressable_rows}",
            "prefill": ", ".join(map(str, capacities.prefill_tokens)),
            "decode": ", ".join(map(str, capacities.decode_lanes)),
            **({"images": _images(capacities)} if capacities.image_patches else {}),
        },
    )
    section(
        "State",
        {
            s.name: f"{s.kind}, {s.layers} x {getattr(s, 'shape', '')} {s.dtype.value}"
            for s in contract.schemes
        },
    )
    section("Memory when loaded", {k: format_bytes(v) for k, v in provenance.memory_ledger.items()})
    section("File", {k: format_bytes(v) for k, v in roles.items()})
    section("Retained modules", dict.fromkeys(provenance.retained_modules, ""))
    section("Replaced modules", dict(provenance.replaced_modules))
    console.print("\n[bold]Programs[/bold]")
    table = Table("name", "kind", "lanes", "tokens", "pending", "cost", box=None, padding=(0, 2))
    for program in contract.programs:
        cost = "" if program.cost_us is None else f"{program.cost_us / 1000:.2f} ms"
        table.add_row(
            program.name,
            program.kind.value,
            str(program.lanes),
            str(program.tokens),
            program.pending.value,
            cost,
        )
    console.print(table)
    if provenance.tuned:
        console.print("\n[bold]Kernels chosen by measurement[/bold] (median microseconds)")
        table = Table("operator", "shape", "chosen", "time", "others", box=None, padding=(0, 2))
        for tuned in provenance.tuned:
            times = sorted(tuned.microseconds.items(), key=lambda item: item[1])
            others = ", ".join(f"{name} {time:.1f}" for name, time in times if name != tuned.chosen)
            time = f"{tuned.microseconds[tuned.chosen]:.1f}" if tuned.chosen in tuned.microseconds else ""
            table.add_row(*map(escape, (tuned.operator, tuned.shape, tuned.chosen, time, others)))
        console.print(table)


def _images(capacities: Capacities) -> str:
    sizes = ", ".join(map(str, capacities.image_patches))
    return f"{sizes} patches each, {capacities.image_features} tokens per request"

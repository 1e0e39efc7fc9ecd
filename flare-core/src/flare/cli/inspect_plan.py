"""`flare inspect --plan`: how large the state of a model is, before its checkpoint is there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from flare.contract.schemes import CacheScheme
    from flare.prepare.published import SchemeSize, StatePlan


def show_plan(name: str, as_json: bool) -> None:
    """Print the state of model `name`. Raises RecipeError for a model that has no published configuration."""
    from flare.prepare.published import plan_state, read_published
    from flare.recipes import discover, load_recipe

    descriptor, entry = discover().find_model(name)
    published = read_published(entry)
    plan = plan_state(load_recipe(descriptor), published)
    if as_json:
        typer.echo(json.dumps(_document(name, plan), indent=2))
    else:
        _print(name, plan)


def _document(name: str, plan: StatePlan) -> dict[str, Any]:
    return {
        "model": name,
        "source": plan.source,
        "dtype": plan.dtype.value,
        "page_tokens": plan.page.page_tokens,
        "token_bytes": plan.token_bytes,
        "page_bytes": plan.page.nbytes,
        "row_bytes": plan.row.nbytes,
        "schemes": {
            size.scheme.name: {"kind": size.scheme.kind, "token_bytes": size.token, "row_bytes": size.row}
            for size in plan.schemes
        },
    }


def _print(name: str, plan: StatePlan) -> None:
    from rich.console import Console
    from rich.table import Table

    from flare.prepare.plan import format_bytes

    console = Console() if sys.stdout.isatty() else Console(width=400)
    console.print(f"{name}: the state of one sequence in {plan.dtype.value}")
    console.print(f"({plan.source})\n")
    table = Table(
        "state", "kind", "entries", "bytes per token", "bytes per sequence", box=None, padding=(0, 2)
    )
    for size in plan.schemes:
        table.add_row(
            size.scheme.name, size.scheme.kind, _entries(size.scheme), _number(size.token), _row(size)
        )
    console.print(table)
    page = plan.page
    console.print(f"\nA token: {_number(plan.token_bytes)} bytes, and its share of a row.")
    console.print(f"A page: {page.page_tokens} tokens, {page.nbytes} bytes ({format_bytes(page.nbytes)}).")
    console.print(
        f"A row: {plan.row.nbytes} bytes ({format_bytes(plan.row.nbytes)}), for every request and snapshot."
    )


def _entries(scheme: CacheScheme) -> str:
    described = {
        name: getattr(scheme, name)
        for name in ("shape", "channels", "taps", "length", "window", "count")
        if hasattr(scheme, name)
    }
    sizes = " x ".join(
        str(part)
        for value in described.values()
        for part in (value if isinstance(value, tuple) else (value,))
    )
    group = f", one for {scheme.group} tokens" if scheme.kind == "grouped" else ""
    return f"{scheme.layers} x [{sizes}] {scheme.dtype.value}{group}"


def _number(count: float) -> str:
    return f"{count:g}" if count else "-"


def _row(size: SchemeSize) -> str:
    return str(size.row) if size.row else "-"

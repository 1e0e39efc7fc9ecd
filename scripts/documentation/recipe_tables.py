"""The tables of docs/recipes.md: what recipes of two models share, and what each keeps. Run it to write them.

They follow from what the modules of the recipes import, and from their docstrings. A table stands between
`<!-- recipes: NAME -->` and `<!-- end -->`; the tests fail when one is not what the code says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
RECIPES = {"Qwen": "flare_recipe_qwen", "GLM": "flare_recipe_glm"}
ROOMS = (
    "flare_components.modules",
    "flare_components.serving",
    "flare_components.testing",
    "flare.prepare",
    "flare.contract",
)
_TABLE = re.compile(r"(<!-- recipes: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def sources(package: str) -> dict[str, ast.Module]:
    """The modules of a package, parsed, by name."""
    spec = find_spec(package)
    assert spec is not None
    (place,) = spec.submodule_search_locations or ()
    return {file.stem: ast.parse(file.read_text()) for file in sorted(Path(place).glob("*.py"))}


def imported(package: str, room: str) -> set[str]:
    """What a package imports from `room`, or from something in it."""
    return {
        alias.name
        for tree in sources(package).values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{room}.")
        for alias in node.names
    }


def shared() -> str:
    """Of every room the names that both import, and those of one alone."""
    rows = [
        f"| from | both | {' | '.join(f'{title} alone' for title in RECIPES)} |",
        "| --- | --- | --- | --- |",
    ]
    for room in ROOMS:
        first, second = (imported(package, room) for package in RECIPES.values())
        cells = [
            ", ".join(f"`{name}`" for name in sorted(names))
            for names in (first & second, first - second, second - first)
        ]
        rows.append("| " + " | ".join((f"`{room}`", *cells)) + " |")
    return "\n".join(rows) + "\n"


def own() -> str:
    """Every module of the recipes, with what it says it is."""
    modules = {title: sources(package) for title, package in RECIPES.items()}
    names = sorted({name for found in modules.values() for name in found if not name.startswith("__")})
    rows = [f"| module | {' | '.join(modules)} |", "| --- | --- | --- |"]
    for name in names:
        cells = [_purpose(found.get(name)) for found in modules.values()]
        rows.append("| " + " | ".join((f"`{name}`", *cells)) + " |")
    return "\n".join(rows) + "\n"


TABLES: dict[str, Callable[[], str]] = {"shared": shared, "own": own}


def current(page: str) -> str:
    """The page with its tables as the code has them. Raises KeyError for a table that does not exist."""
    return _TABLE.sub(lambda part: part[1] + "\n" + TABLES[part[2]]() + "\n" + part[3], page)


def _purpose(tree: ast.Module | None) -> str:
    if tree is None:
        return ""
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text()))

"""A new recipe package on disk, from the template beside this file."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from datetime import date
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from string import Template

from flare import __version__
from flare.errors import FlareError, RecipeError

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_LONGEST = 40
_SUFFIX = ".tmpl"


def write_recipe_package(name: str, parent: Path) -> Path:
    """Write `parent/flare-recipe-NAME`, complete or not at all; returns the new directory.

    `name` is lower case: letters, digits, single `-` or `_` between them, a letter first. The package is
    `flare_recipe_NAME` with underscores, its model `NAME-tiny`.

    Raises: RecipeError for another name, FlareError when the directory exists or `parent` is not one.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise RecipeError(
            f"{name!r} cannot name a recipe: use up to {_LONGEST} lower-case letters and digits, a letter "
            "first, joined by single hyphens, for example my-model",
            field="name",
        )
    if parent.exists() and not parent.is_dir():
        raise FlareError(f"{parent} is not a directory", field="output")
    target = parent / f"flare-recipe-{name}"
    if target.exists():
        raise FlareError(f"{target} exists; choose another name or --output", field="output")
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{target.name}.") as place:
        staged = Path(place) / target.name
        for path, text in render(name).items():
            file = staged / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        shutil.move(staged, target)
    return target


def render(name: str) -> dict[str, str]:
    """The text of every file, by its path inside the package directory."""
    package = f"flare_recipe_{name.replace('-', '_')}"
    values = {
        "name": name,
        "model": f"{name}-tiny",
        "package": package,
        "distribution": f"flare-recipe-{name}",
        "version": __version__,
        "date": date.today().isoformat(),
    }
    return {
        str(path).removesuffix(_SUFFIX).replace("PACKAGE", package): Template(text).substitute(values)
        for path, text in _walk(files("flare.authoring") / "template", PurePosixPath())
    }


def _walk(place: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    for entry in sorted(place.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk(entry, path / entry.name)
        elif entry.name.endswith(_SUFFIX):
            yield path / entry.name, entry.read_text(encoding="utf-8")

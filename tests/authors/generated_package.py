"""A generated recipe package on the import path, as an installer would leave it, for this process only."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from flare.authoring import write_recipe_package

NAME = "planted"
PACKAGE = "flare_recipe_planted"


@contextmanager
def installed(place: Path, change: Callable[[Path], None] = lambda package: None) -> Iterator[ModuleType]:
    """The light module of a new package in `place` whose files `change` has edited (it gets the package
    directory)."""
    package = write_recipe_package(NAME, place)
    change(package)
    _write_metadata(package)
    sys.path.insert(0, str(package / "src"))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(package / "src"))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def _write_metadata(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    info = package / "src" / f"{PACKAGE}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(sections))


def edited(file: str, old: str, new: str) -> Callable[[Path], None]:
    """A change that replaces `old`, which must be there, by `new` in `file` of the package directory."""

    def change(package: Path) -> None:
        path = package / file.replace("PACKAGE", PACKAGE)
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new))

    return change

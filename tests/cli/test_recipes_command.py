"""`flare recipes`, and what `flare prepare` says about the recipe of its model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from flare_command import flare

FINE = """
print("something to say")
from flare.recipes import ModelEntry, RecipeDescriptor, hookimpl

@hookimpl
def flare_recipe_descriptors():
    return [RecipeDescriptor(
        name="fine", title="Fine", api_version=1, architectures=["A"], recipe="nowhere:RECIPE",
        models=[ModelEntry(name="fine-1b", checkpoint="/nowhere", license="MIT")],
    )]
"""


def install(site: Path, name: str, source: str, requires: str = "flare-core", module: str = "") -> None:
    info = site / f"{module or name}_dist-1.0.dist-info"
    info.mkdir(parents=True)
    headers = f"Name: {module or name}-dist\nVersion: 1.0\nRequires-Dist: {requires}\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{headers}")
    (info / "entry_points.txt").write_text(f"[flare.recipes]\n{name}-1b = {module or name}_module\n")
    (site / f"{module or name}_module.py").write_text(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recipe of every status."""
    directory = tmp_path_factory.mktemp("recipes")
    install(directory, "fine", FINE)
    install(directory, "sad", "def fail():\n    raise SystemExit('[red]no luck')\nfail()")
    install(directory, "later", "", requires="flare-core>=99")
    install(directory, "twin", "", module="left")
    install(directory, "twin", "", module="right")
    return directory


def recipes(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return flare("recipes", *arguments, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1", **environment)


def test_json(site: Path) -> None:
    result = recipes(site, "--json")
    assert result.returncode == 0, result.stderr
    rows = {(row["name"], row["distribution"]): row for row in json.loads(result.stdout)}
    assert rows["fine-1b", "fine-dist"] == {
        "name": "fine-1b",
        "recipe": "fine",
        "distribution": "fine-dist",
        "version": "1.0",
        "api_version": 1,
        "status": "ok",
    }
    assert rows["sad-1b", "sad-dist"]["status"] == "broken: SystemExit: [red]no luck"
    assert rows["later-1b", "later-dist"]["status"] == "needs flare-core>=99"
    for side in ("left", "right"):
        status = "duplicate: in left-dist 1.0 and right-dist 1.0"
        assert rows["twin-1b", f"{side}-dist"]["status"] == status
    assert result.stderr == "something to say\n"


def test_the_table_has_a_line_for_every_row(site: Path) -> None:
    lines = recipes(site).stdout.splitlines()
    for words in (("fine-1b", "fine-dist 1.0", "ok"), ("sad-1b", "broken: SystemExit: [red]no luck")):
        assert any(all(word in line for word in words) for line in lines)


def test_the_installed_recipe() -> None:
    (row,) = [row for row in json.loads(flare("recipes", "--json").stdout) if row["name"] == "smollm2-135m"]
    assert (row["recipe"], row["distribution"], row["status"]) == ("smollm", "flare-recipe-smollm", "ok")


def test_an_allowlist(site: Path) -> None:
    assert [row["name"] for row in json.loads(recipes(site, "--json", FLARE_RECIPES="sad-1b").stdout)] == [
        "sad-1b"
    ]
    assert recipes(site, "--json", FLARE_RECIPES="").stdout == "[]\n"
    result = recipes(site, FLARE_RECIPES="absent")
    assert result.returncode == 1
    assert "FLARE_RECIPES names absent" in result.stderr
    assert "sad-1b (sad-dist)" in result.stderr


@pytest.mark.parametrize(
    ("allowed", "complaint"),
    [
        ("sad-dist", "SystemExit: [red]no luck"),
        ("later-dist", "later-1b from later-dist 1.0: needs flare-core>=99"),
        ("twin-1b", "twin-1b from right-dist 1.0: duplicate: in left-dist 1.0 and right-dist 1.0"),
    ],
)
def test_strict_mode_fails(site: Path, allowed: str, complaint: str) -> None:
    result = recipes(site, "--json", FLARE_RECIPES=allowed, FLARE_STRICT_RECIPES="1")
    assert result.returncode == 1
    assert json.loads(result.stdout)
    assert complaint in result.stderr.splitlines()
    assert result.stderr.splitlines()[-1].startswith("flare: FLARE_STRICT_RECIPES: not usable: ")
    assert ("Traceback" in result.stderr) == (allowed == "sad-dist")


def test_strict_mode_passes_what_is_fine(site: Path) -> None:
    result = recipes(site, FLARE_RECIPES="fine-1b,smollm2-135m", FLARE_STRICT_RECIPES="1")
    assert result.returncode == 0, result.stderr


def test_preparing_with_a_broken_recipe_shows_its_traceback(site: Path) -> None:
    result = flare("prepare", "sad-1b", PYTHONPATH=str(site))
    assert (result.returncode, result.stdout) == (1, "")
    first, *_, last = result.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert "in fail" in result.stderr
    assert last == "flare: the recipe of sad-1b, from sad-dist 1.0, is broken: SystemExit: [red]no luck"


def test_preparing_what_two_distributions_offer(site: Path) -> None:
    result = flare("prepare", "twin-1b", PYTHONPATH=str(site))
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "left-dist 1.0 and right-dist 1.0" in result.stderr

"""`flare new-recipe`: names, places, and files that are ready to be worked on."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flare.authoring import write_recipe_package
from flare.cli import app
from flare.errors import FlareError, RecipeError


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["new-recipe", "my-model", "--output", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    package = tmp_path / "new/flare-recipe-my-model"
    assert result.stdout.startswith(f"{package}\n")
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["name"] == "flare-recipe-my-model"
    assert project["entry-points"]["flare.recipes"] == {"my-model-tiny": "flare_recipe_my_model"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["flare-recipe-my-model"]


def test_it_never_overwrites(tmp_path: Path) -> None:
    file = tmp_path / "flare-recipe-mine" / "notes.txt"
    file.parent.mkdir()
    file.write_text("kept")
    result = CliRunner().invoke(app, ["new-recipe", "mine", "--output", str(tmp_path)])
    assert result.exit_code == 1
    assert f"flare: {file.parent} exists" in result.stderr
    assert [path.name for path in file.parent.iterdir()] == ["notes.txt"]


def test_a_place_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FlareError, match="is not a directory"):
        write_recipe_package("mine", tmp_path / "file")


@pytest.mark.parametrize(
    "name", ["", "My-model", "1b", "a b", "a--b", "a-", "-a", "a.b", "../a", "a/b", "ä", "a" * 41, "a\n"]
)
def test_a_name_that_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecipeError, match="cannot name a recipe") as caught:
        write_recipe_package(name, tmp_path)
    assert caught.value.field == "name"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "my_model", "m2-7b-chat"])
def test_every_file_is_formatted_and_has_no_placeholder_left(tmp_path: Path, name: str) -> None:
    package = write_recipe_package(name, tmp_path)
    for file in package.rglob("*"):
        assert not file.is_file() or "$" not in file.read_text(), file
    for arguments in (["format", "--check"], ["check", "--select", "E,F,W,I,B,UP,RUF"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", str(package)]
        result = subprocess.run(command, capture_output=True, text=True, cwd=package)
        assert result.returncode == 0, result.stdout


def test_what_an_author_changes_is_marked(tmp_path: Path) -> None:
    package = write_recipe_package("mine", tmp_path)
    marked = {file.name for file in package.rglob("*.py") if "# CHANGE:" in file.read_text()}
    parts = {"descriptor.py", "loader.py", "model.py", "recipe.py", "frontend.py", "oracle.py"}
    assert marked == {*parts, "test_recipe.py"}

"""docs/recipes.md names every field of a descriptor, every column and status, and every variable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from flare.cli.recipes import FIELDS
from flare.recipes import GROUP, SOURCES, ModelEntry, RecipeDescriptor, allowlist, probe

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()


def tables() -> list[list[str]]:
    """First cells, without the words after them, of every table."""
    found = re.findall(r"^\|.*\|\n\| --- .*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [re.findall(r"^\| `([A-Za-z0-9_]+)", rows, re.MULTILINE) for rows in found]


@pytest.mark.parametrize("model", [RecipeDescriptor, ModelEntry])
def test_every_field_has_a_row(model: type[BaseModel]) -> None:
    assert list(model.model_fields) in tables()


def test_every_status_has_a_row() -> None:
    assert list(get_args(probe.State)) in tables()


def test_every_setting_has_a_row() -> None:
    assert [allowlist.ALLOWLIST, allowlist.STRICT] in tables()


def test_columns_and_groups_are_named() -> None:
    for name in (*FIELDS, GROUP, SOURCES):
        assert f"`{name}`" in PAGE

"""`FLARE_RECIPES` allows, `FLARE_STRICT_RECIPES` insists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plugin_samples import discover_in, install, plugin, row_of

from flare.errors import RecipeError


@pytest.fixture
def several(site: Path) -> Path:
    """`site` with a further distribution of two models, in one broken module."""
    install(site, "pair_dist", "1 / 0", "pair-1b", "pair-2b")
    return site


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("", []),
        (" , ", []),
        ("good-1b", ["good-1b"]),
        ("pair_dist", ["pair-1b", "pair-2b"]),
        (" Pair.Dist,good-1b ", ["good-1b", "pair-1b", "pair-2b"]),
        ("pair-2b", ["pair-2b"]),
    ],
)
def test_the_allowlist(several: Path, setting: str, names: list[str]) -> None:
    assert [row.name for row in discover_in(several, FLARE_RECIPES=setting).rows] == names
    assert ("good_dist" in sys.modules) == ("good-1b" in names)


def test_a_name_that_is_not_installed_is_an_error(several: Path) -> None:
    with pytest.raises(RecipeError, match=r"names absent, which is not .*good-1b \(good_dist\), pair-1b"):
        discover_in(several, FLARE_RECIPES="good-1b,absent")


def test_what_is_left_out_cannot_be_chosen(several: Path) -> None:
    with pytest.raises(RecipeError, match=r"installed, but FLARE_RECIPES leaves it out\. Known: pair-1b\."):
        discover_in(several, FLARE_RECIPES="pair-1b").find_model("good-1b")
    with pytest.raises(RecipeError, match="FLARE_RECIPES allows none of the installed recipes"):
        discover_in(several, FLARE_RECIPES="").find_model("absent")


def test_what_is_left_out_is_not_missed(site: Path) -> None:
    install(site, "pair_dist", plugin("pair", "pair-1b", "pair-2b"), "pair-1b", "pair-2b")
    (row,) = discover_in(site, FLARE_RECIPES="pair-1b").rows
    assert (row.name, row.status) == ("pair-1b", "ok")


@pytest.mark.parametrize(("setting", "strict"), [("", False), ("0", False), ("1", True)])
def test_the_strict_setting(site: Path, setting: str, strict: bool) -> None:
    assert discover_in(site, FLARE_STRICT_RECIPES=setting).strict is strict


def test_another_strict_setting_is_an_error(site: Path) -> None:
    with pytest.raises(RecipeError, match="FLARE_STRICT_RECIPES is 1 or 0, not 'yes'"):
        discover_in(site, FLARE_STRICT_RECIPES="yes")


HEAVY = {
    "imported_early": "import torch.nn",
    "imported_deep": "import importlib\nimportlib.import_module('transformers')",
    "imported_quietly": "try:\n    import torch\nexcept BaseException:\n    pass",
    "imported_late": "",
}


@pytest.mark.parametrize("kind", HEAVY)
def test_a_light_module_that_is_heavy(site: Path, kind: str) -> None:
    source = f"{HEAVY[kind]}\n{plugin('heavy', 'heavy-1b')}"
    if kind == "imported_late":
        source = source.replace("    return [", "    import torch\n    return [")
    install(site, kind, source, "heavy-1b")
    row = row_of(discover_in(site, FLARE_STRICT_RECIPES="1"), "heavy-1b")
    library = "transformers" if kind == "imported_deep" else "torch"
    assert row.status == f"broken: its light module imports {library}; keep that behind the import string"
    assert row.error is not None
    assert f'{kind}.py", line' in row.error.__notes__[0]


def test_a_light_module_that_is_light(site: Path) -> None:
    # It may ask whether the library is there, and it does not matter that this process imported it already.
    assert "torch" in sys.modules
    source = "import importlib.util\nassert importlib.util.find_spec('torch')\n"
    install(site, "light", source + plugin("light", "light-1b"), "light-1b")
    assert row_of(discover_in(site, FLARE_STRICT_RECIPES="1"), "light-1b").status == "ok"


def test_a_light_module_that_ends_its_process(site: Path) -> None:
    install(site, "crash", "import os\nos._exit(5)", "crash-1b")
    row = row_of(discover_in(site, FLARE_STRICT_RECIPES="1"), "crash-1b")
    assert row.status == "broken: its light module ends a process with status 5"

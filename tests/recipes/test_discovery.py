"""Listing recipes: everything that can be wrong with a plugin is one row, and harms no other."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from plugin_samples import discover_in, install, plugin, row_of

from flare.recipes import RECIPE_API_VERSION, discover


def test_a_good_plugin(site: Path) -> None:
    (row,) = discover_in(site).rows
    assert (row.name, row.recipe, row.distribution, row.version) == ("good-1b", "good", "good_dist", "2.3")
    assert (row.status, row.api_version) == ("ok", RECIPE_API_VERSION)
    assert row.model is not None
    assert row.model.name == "good-1b"


def test_installed_plugins_are_found_by_their_group(site: Path) -> None:
    assert row_of(discover(), "good-1b").status == "ok"


def test_a_recipe_with_several_models_is_read_once_for_all_of_them(site: Path) -> None:
    source = plugin("pair", "pair-1b", "pair-2b") + "\nopen(__file__ + '.read', 'a').write('x')\n"
    install(site, "pair_dist", source, "pair-1b", "pair-2b")
    rows = [row for row in discover_in(site).rows if row.recipe == "pair"]
    assert [(row.name, row.status) for row in rows] == [("pair-1b", "ok"), ("pair-2b", "ok")]
    assert (site / "pair_dist.py.read").read_text() == "x"


HOOK = "from flare.recipes import hookimpl\n@hookimpl\n"
DESCRIPTORS = HOOK + "def flare_recipe_descriptors():\n    "
ONE = plugin("one", "one-1b").replace("return [", "return ").replace("    )]", "    )")
# Source of a module, and a part of why it is broken.
BROKEN = {
    "raises": ("1 / 0", "ZeroDivisionError: division by zero"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "outside_exception": ("class Stop(BaseException): ...\nraise Stop('now')", "Stop: now"),
    "unprintable": ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E", "broken: E"),
    "several_lines": ("raise ValueError('a\\nb\\x1b[31m\\udcff')", "ValueError: a b [31m"),
    "long": ("raise ValueError('a' * 10**6)", "a" * 100),
    "syntax": ("def (", "SyntaxError"),
    "needs_more": ("import not_installed_anywhere", "No module named 'not_installed_anywhere'"),
    "hook_raises": (DESCRIPTORS + "raise OSError('disk')", "OSError: disk"),
    "hook_exits": (DESCRIPTORS + "raise SystemExit", "SystemExit"),
    "wrong_items": (DESCRIPTORS + "return ['a']", "gave a str, not a RecipeDescriptor"),
    "no_list": (DESCRIPTORS + "return 3", "gave a int, not a list"),
    "no_list_either": (ONE, "gave a RecipeDescriptor, not a list"),
    "no_answer": (DESCRIPTORS + "return None", "models there: none"),
    "unchecked": (
        plugin("x", "x")
        .replace("RecipeDescriptor(", "RecipeDescriptor.model_construct(")
        .replace('title="A recipe", ', ""),
        "title: Field required",
    ),
    "wrong_signature": (HOOK + "def flare_recipe_descriptors(config):\n    return []", "config"),
    "mistyped_hook": (HOOK + "def flare_recipe_descriptor():\n    return []", "flare_recipe_descriptor"),
    "unmarked": ("def flare_recipe_descriptors():\n    return []", "@hookimpl"),
    "bad_field": (plugin("Not A Name", "x"), "RecipeDescriptor: name: String should match"),
    "other_model": (plugin("other", "another-1b"), "lists this model; models there: another-1b"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_one_row_and_hides_nothing(site: Path, kind: str) -> None:
    source, reason = BROKEN[kind]
    install(site, kind, source, f"{kind}-1b")
    registry = discover_in(site)
    broken = row_of(registry, f"{kind}-1b")
    assert broken.status.startswith("broken: ")
    assert reason in broken.status
    assert broken.status.isprintable()
    assert len(broken.status) < 400
    assert row_of(registry, "good-1b").status == "ok"


def test_ctrl_c_is_not_a_broken_plugin(site: Path) -> None:
    install(site, "slow", "raise KeyboardInterrupt", "slow-1b")
    with pytest.raises(KeyboardInterrupt):
        _ = discover_in(site).rows


@pytest.mark.parametrize("version", [RECIPE_API_VERSION + 6, RECIPE_API_VERSION + 1])
def test_another_api_version_names_both_numbers(site: Path, version: int) -> None:
    # A descriptor of another version may well have other fields.
    source = plugin("far", "far-1b", api_version=version).replace("title=", "colour='red', title=")
    install(site, "far_dist", source, "far-1b")
    row = row_of(discover_in(site), "far-1b")
    assert row.status == f"broken: written for recipe API {version}, this flare-core implements 1"
    assert row.api_version == version


def test_an_older_api_version(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flare.recipes.probe.RECIPE_API_VERSION", 2)
    assert row_of(discover_in(site), "good-1b").status == (
        "broken: written for recipe API 1, this flare-core implements 2"
    )


def test_two_distributions_with_one_model_name_are_not_imported(site: Path) -> None:
    install(site, "other_dist", "raise RuntimeError('imported')", "good-1b", "fine-1b", version="0.9")
    rows = [row for row in discover_in(site).rows if row.name == "good-1b"]
    assert [row.status for row in rows] == ["duplicate: in good_dist 2.3 and other_dist 0.9"] * 2
    assert "good_dist" not in sys.modules
    assert "imported" in row_of(discover_in(site), "fine-1b").status


@pytest.mark.parametrize(
    ("requirement", "status"),
    [
        ("flare-core>=99", "needs flare-core>=99"),
        ("Flare_Core (>=99,<100)", "needs flare-core>=99"),
        ("flare-core==0.0.1", "needs flare-core==0.0.1"),
        ("flare-core>=0.0.1,<99", "ok"),
        ("flare-core>=99; python_version < '3'", "ok"),
        ("flare-core[cpu]>=99; extra == 'cpu'", "ok"),
        ("something else entirely", "ok"),
        ("flare-core>=new", "broken: its METADATA has a malformed requirement"),
    ],
)
def test_what_needs_another_core_is_not_imported(site: Path, requirement: str, status: str) -> None:
    install(
        site, "from_later", plugin("from_later", "later-1b"), "later-1b", requires=["numpy>=1", requirement]
    )
    assert row_of(discover_in(site), "later-1b").status.startswith(status)
    assert ("from_later" in sys.modules) == (status == "ok")


def test_a_model_without_an_entry_point_is_pointed_out(site: Path) -> None:
    install(site, "pair_dist", plugin("pair", "pair-1b", "pair-2b"), "pair-1b")
    assert row_of(discover_in(site), "pair-1b").status == "ok"
    assert row_of(discover_in(site), "pair-2b").status == (
        "broken: no entry point has this name: point one of the group flare.recipes to pair_dist"
    )


def test_what_plugins_print_goes_to_standard_error(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = "import os, sys\nprint('one')\nsys.__stdout__.write('two')\nos.system('echo three')\n"
    install(site, "loud", source + plugin("loud", "loud-1b"), "loud-1b")
    assert row_of(discover_in(site), "loud-1b").status == "ok"
    print("afterwards")
    captured = capfd.readouterr()
    assert captured.out == "afterwards\n"
    assert {"one", "three"} <= set(captured.err.replace("two", "").split())


@pytest.mark.alone
def test_fifty_recipes_are_listed_quickly_and_without_their_heavy_halves(site: Path) -> None:
    for index in range(49):
        name = f"model-{index}"
        install(site, f"dist_{index}", plugin(f"recipe-{index}", name), name, requires=["flare-core>=0.0.1"])
    started = time.process_time()  # other processes have the processor too
    rows = discover([str(site), *sys.path], os.environ).rows
    spent = time.process_time() - started
    assert len(rows) >= 50
    assert {row.status for row in rows} == {"ok"}
    assert "nowhere_at_all" not in sys.modules
    assert spent < 0.2

"""Discovery: everything that can be wrong with a plugin is one row, and harms no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_samples import discover_in, install, plugin

from flare.errors import RecipeError
from flare.recipes import discover, load_recipe


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "site"
    monkeypatch.syspath_prepend(directory)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    install(directory, "good_dist", plugin("good", "good-1b"), version="2.3")
    before = set(sys.modules)
    yield directory
    # Modules of one test must not be found again by the next.
    for name in set(sys.modules) - before:
        if str(directory) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_good_plugin(site: Path) -> None:
    (row,) = discover_in(site).rows
    assert (row.name, row.distribution, row.version, row.status) == ("good", "good_dist", "2.3", "ok")
    assert row.reason is None
    assert row.descriptor is not None
    assert row.descriptor.models[0].name == "good-1b"


def test_installed_plugins_are_found_by_their_group(site: Path) -> None:
    assert "good" in [row.name for row in discover().rows if row.status == "ok"]


HOOK = "from flare.recipes import hookimpl\n@hookimpl\n"
BROKEN = {
    "raises": ("1 / 0", "ZeroDivisionError"),
    "exits": ("raise SystemExit(3)", "SystemExit"),
    "needs_more": ("import not_installed_anywhere", "not_installed_anywhere"),
    "hook_raises": (HOOK + "def flare_recipe_descriptors():\n    raise OSError('disk')", "disk"),
    "wrong_type": (HOOK + "def flare_recipe_descriptors():\n    return ['a']", "str, not a RecipeDescriptor"),
    "wrong_signature": (HOOK + "def flare_recipe_descriptors(config):\n    return []", "config"),
    "unknown_hook": (HOOK + "def flare_recipe_descriptor():\n    return []", "flare_recipe_descriptor"),
    "unmarked": ("def flare_recipe_descriptors():\n    return []", "@hookimpl"),
    "bad_field": (plugin("Not A Name", "x"), "name"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_one_row_and_hides_nothing(site: Path, kind: str) -> None:
    source, reason = BROKEN[kind]
    install(site, kind, source)
    registry = discover_in(site)
    broken = next(row for row in registry.rows if row.name == kind)
    assert broken.status == "broken"
    assert broken.reason is not None
    assert reason in broken.reason
    assert "\n" not in broken.reason
    assert registry.find_model("good-1b")[0].name == "good"
    assert registry.manager.get_plugin(f"{kind}:{kind}") is None
    with pytest.raises(RecipeError, match=kind) as raised:
        registry.find_model(kind)
    assert raised.value.__cause__ is broken.error


def test_two_distributions_with_one_recipe_name(site: Path) -> None:
    install(site, "other_dist", plugin("good", "other-1b"), version="0.9")
    registry = discover_in(site)
    assert [row.status for row in registry.rows] == ["broken", "broken"]
    for row in registry.rows:
        assert row.reason == "duplicate name good in good_dist 2.3 and other_dist 0.9"
    with pytest.raises(RecipeError, match=r"good_dist.*other_dist"):
        registry.find_model("other-1b")


def test_two_recipes_with_one_model_name(site: Path) -> None:
    install(site, "other_dist", plugin("other", "good-1b"))
    with pytest.raises(RecipeError, match=r"duplicate name good-1b in good_dist 2\.3 and other_dist 1\.0"):
        discover_in(site).find_model("good-1b")


def test_api_version_mismatch_names_both_numbers(site: Path) -> None:
    install(site, "future", plugin("future", "future-1b", api_version=7))
    registry = discover_in(site)
    reason = next(row.reason for row in registry.rows if row.name == "future")
    assert reason is not None
    assert "recipe API 7" in reason
    assert "implements 1" in reason
    with pytest.raises(RecipeError, match=r"recipe API 7.*implements 1"):
        registry.find_model("future-1b")
    descriptor = next(row.descriptor for row in registry.rows if row.name == "future")
    assert descriptor is not None
    with pytest.raises(RecipeError, match=r"recipe API 7.*implements 1"):
        load_recipe(descriptor)


def test_a_recipe_with_one_model_answers_to_its_own_name(site: Path) -> None:
    registry = discover_in(site)
    assert registry.find_model("good") == registry.find_model("good-1b")


def test_a_recipe_with_several_models_asks_which(site: Path) -> None:
    two = plugin("pair", "pair-1b").replace(
        "models=(", 'models=(ModelEntry(name="pair-2b", checkpoint="/x", license="MIT"), '
    )
    install(site, "pair_dist", two)
    registry = discover_in(site)
    assert registry.find_model("pair-2b")[1].name == "pair-2b"
    with pytest.raises(RecipeError, match="pair-2b, pair-1b"):
        registry.find_model("pair")


def test_unknown_names_get_close_ones_and_the_broken_list(site: Path) -> None:
    install(site, "sad", "raise RuntimeError('no luck')")
    with pytest.raises(RecipeError, match="did you mean good-1b") as raised:
        discover_in(site).find_model("good-1v")
    assert "sad" in str(raised.value)
    assert "no luck" in str(raised.value)


def test_no_recipe_at_all() -> None:
    with pytest.raises(RecipeError, match=r"No recipe is installed \(group flare.recipes\)"):
        discover([]).find_model("anything")


def test_load_recipe_chains_the_original_error(site: Path) -> None:
    install(site, "heavy_dist", plugin("heavy", "heavy-1b", heavy="heavy_half:RECIPE"))
    (site / "heavy_half.py").write_text("def build():\n    raise KeyError('layers')\nRECIPE = build()\n")
    descriptor, _ = discover_in(site).find_model("heavy")
    with pytest.raises(RecipeError, match="heavy_half:RECIPE") as raised:
        load_recipe(descriptor)
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.__traceback__ is not None


def test_load_recipe_takes_only_recipes(site: Path) -> None:
    descriptor, _ = discover_in(site).find_model("good")
    (site / "nowhere_at_all.py").write_text("RECIPE = 3\n")
    with pytest.raises(RecipeError, match="int, not a Recipe"):
        load_recipe(descriptor)


def test_fifty_recipes_are_listed_from_metadata_and_light_modules(site: Path) -> None:
    for index in range(49):
        install(site, f"dist_{index}", plugin(f"recipe-{index}", f"model-{index}"))
    registry = discover_in(site)
    assert len(registry.rows) == 50
    assert {row.status for row in registry.rows} == {"ok"}
    # The heavy halves name a module that does not exist: none of them was touched.
    assert "nowhere_at_all" not in sys.modules

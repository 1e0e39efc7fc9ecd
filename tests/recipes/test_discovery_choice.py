"""Choosing a model: by metadata, importing nothing but its recipe, with an error that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plugin_samples import discover_in, install, plugin

from flare.errors import RecipeError
from flare.recipes import discover, load_recipe


def marking(source: str) -> str:
    """A module that leaves a file beside it when imported."""
    return f"open(__file__ + '.imported', 'w').close()\n{source}"


def test_only_the_chosen_module_is_imported(site: Path) -> None:
    for name in ("first", "second", "third"):
        install(site, f"{name}_dist", marking(plugin(name, f"{name}-1b")), f"{name}-1b")
    descriptor, entry = discover_in(site).find_model("second-1b")
    assert (descriptor.name, entry.name) == ("second", "second-1b")
    assert [path.name for path in site.glob("*.imported")] == ["second_dist.py.imported"]
    assert not {"first_dist", "third_dist", "good_dist"} & set(sys.modules)


def test_nothing_is_imported_for_a_name_that_is_unknown(site: Path) -> None:
    install(site, "sad", marking("raise RuntimeError('no luck')"), "sad-1b")
    with pytest.raises(RecipeError, match=r"did you mean good-1b\? Known: good-1b, sad-1b\."):
        discover_in(site).find_model("good-1v")
    assert not list(site.glob("*.imported"))


def test_the_name_of_a_recipe_is_answered_with_its_models(site: Path) -> None:
    with pytest.raises(RecipeError, match="did you mean good-1b"):
        discover_in(site).find_model("good")


def test_no_recipe_at_all(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"No recipe is installed \(group flare.recipes\)"):
        discover_in(tmp_path).find_model("anything")


@pytest.mark.parametrize("source", ["1 / 0", "raise SystemExit(3)", "class E(BaseException): ...\nraise E"])
def test_a_broken_recipe_that_was_asked_for(site: Path, source: str) -> None:
    install(site, "sad", source, "sad-1b")
    with pytest.raises(RecipeError, match=r"the recipe of sad-1b, from sad 1\.0, is broken: ") as raised:
        discover_in(site).find_model("sad-1b")
    cause = raised.value.__cause__
    assert type(cause).__name__ in str(raised.value)
    assert cause is not None
    assert cause.__traceback__ is not None


def test_a_descriptor_without_the_model_of_its_entry_point(site: Path) -> None:
    install(site, "other_dist", plugin("other", "other-2b"), "other-1b")
    with pytest.raises(RecipeError, match="lists this model; models there: other-2b"):
        discover_in(site).find_model("other-1b")


def test_two_distributions_with_one_name(site: Path) -> None:
    install(site, "other_dist", marking(plugin("other", "good-1b")), "good-1b")
    with pytest.raises(RecipeError, match=r"good-1b: in good_dist 2\.3 and other_dist 1\.0; uninstall one"):
        discover_in(site).find_model("good-1b")
    assert not list(site.glob("*.imported"))
    # The allowlist settles it.
    assert discover_in(site, FLARE_RECIPES="other-dist").find_model("good-1b")[0].name == "other"


def test_what_needs_another_core(site: Path) -> None:
    install(site, "later", marking(""), "later-1b", requires=["flare-core>=99"])
    with pytest.raises(
        RecipeError, match=r"later-1b comes from later 1\.0, which needs flare-core>=99; upgrade"
    ):
        discover_in(site).find_model("later-1b")
    assert not list(site.glob("*.imported"))


def test_another_api_version(site: Path) -> None:
    install(site, "future", plugin("future", "future-1b", api_version=7), "future-1b")
    registry = discover_in(site)
    with pytest.raises(RecipeError, match=r"recipe API 7.*implements 1"):
        registry.find_model("future-1b")
    (descriptor,) = {row.descriptor for row in registry.rows if row.name == "future-1b"}
    assert descriptor is not None
    with pytest.raises(RecipeError, match=r"recipe API 7.*implements 1"):
        load_recipe(descriptor)


@pytest.mark.parametrize("failure", ["KeyError('layers')", "SystemExit(2)"])
def test_load_recipe_chains_the_original_error(site: Path, failure: str) -> None:
    install(site, "heavy_dist", plugin("heavy", "heavy-1b", heavy="heavy_half:RECIPE"), "heavy-1b")
    (site / "heavy_half.py").write_text(f"def build():\n    raise {failure}\nRECIPE = build()\n")
    descriptor, _ = discover_in(site).find_model("heavy-1b")
    assert "heavy_half" not in sys.modules
    with pytest.raises(RecipeError, match="heavy_half:RECIPE") as raised:
        load_recipe(descriptor)
    cause = raised.value.__cause__
    assert type(cause).__name__ in failure
    assert cause is not None
    assert cause.__traceback__ is not None


def test_load_recipe_takes_only_recipes(site: Path) -> None:
    descriptor, _ = discover_in(site).find_model("good-1b")
    (site / "nowhere_at_all.py").write_text("RECIPE = 3\n")
    with pytest.raises(RecipeError, match="int, not a Recipe"):
        load_recipe(descriptor)


def test_the_digest_of_a_descriptor_follows_all_it_says(site: Path) -> None:
    descriptor, _ = discover().find_model("good-1b")
    assert len(descriptor.digest) == 64
    assert descriptor.digest == type(descriptor)(**descriptor.model_dump()).digest
    assert descriptor.digest != descriptor.model_copy(update={"title": "Another"}).digest

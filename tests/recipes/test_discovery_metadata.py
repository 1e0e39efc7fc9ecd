"""What installers leave behind: stale, double and unreadable metadata, and editable installs."""

from __future__ import annotations

import importlib
import json
import shutil
import site as site_packages
import sys
from pathlib import Path

import pytest
from plugin_samples import describe, discover_in, install, plugin, row_of

from flare.errors import RecipeError


def test_metadata_that_outlived_its_module(site: Path) -> None:
    install(site, "gone", plugin("gone", "gone-1b"), "gone-1b")
    (site / "gone.py").unlink()
    row = row_of(discover_in(site), "gone-1b")
    assert row.status == (
        "broken: its module gone is not there; install the package again, or uninstall what is left of it"
    )
    assert isinstance(row.error, ModuleNotFoundError)


def test_a_directory_without_code_is_not_a_module(site: Path) -> None:
    describe(site / "husk-1.0.dist-info", "husk", "husk-1b")
    (site / "husk" / "__pycache__").mkdir(parents=True)
    assert row_of(discover_in(site), "husk-1b").status == (
        "broken: its module husk is a directory without code; install the package again"
    )


def test_a_dist_info_without_metadata(site: Path) -> None:
    install(site, "half", plugin("half", "half-1b"), "half-1b")
    (site / "half-1.0.dist-info" / "METADATA").unlink()
    row = row_of(discover_in(site), "half-1b")
    assert (row.distribution, row.version) == ("half", "unknown")
    assert row.status.startswith(f"broken: no readable METADATA in {site}")
    assert "half" not in sys.modules


def test_what_is_left_of_another_package_takes_no_name(site: Path) -> None:
    describe(site / "former_name-1.0.dist-info", "former_name", "good-1b")
    (site / "former_name-1.0.dist-info" / "METADATA").unlink()
    registry = discover_in(site)
    assert [row.state for row in registry.rows] == ["broken", "ok"]
    assert registry.find_model("good-1b")[0].name == "good"


def test_an_empty_dist_info_says_nothing(site: Path) -> None:
    (site / "nothing-1.0.dist-info").mkdir()
    assert [row.name for row in discover_in(site).rows] == ["good-1b"]


@pytest.mark.parametrize(
    "content", [b"[flare.recipes]\nbad-1b = \xff\n", b"[flare.recipes]\nno equals sign\n"]
)
def test_unreadable_entry_points(site: Path, content: bytes) -> None:
    install(site, "bad", plugin("bad", "bad-1b"), "bad-1b")
    points = site / "bad-1.0.dist-info" / "entry_points.txt"
    points.write_bytes(content)
    assert row_of(discover_in(site), "bad").status.startswith("broken: its entry_points.txt cannot be read")
    assert row_of(discover_in(site), "good-1b").status == "ok"
    # Somebody else's broken metadata is not a recipe.
    points.write_bytes(content.replace(b"flare.recipes", b"console_scripts"))
    assert [row.name for row in discover_in(site).rows] == ["good-1b"]


def test_headers_that_are_missing(site: Path) -> None:
    describe(site / "nameless-1.0.dist-info", "nameless", "nameless-1b")
    (site / "nameless-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\n")
    assert row_of(discover_in(site), "nameless-1b").status == "broken: its METADATA has no Name or no Version"


def test_an_entry_point_that_names_nothing(site: Path) -> None:
    describe(site / "odd-1.0.dist-info", "not a module!", "odd-1b")
    assert "Invalid object reference" in row_of(discover_in(site), "odd-1b").status


def test_the_first_on_the_path_wins(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "first"
    install(first, "good_dist", plugin("newer", "good-1b"), "good-1b", version="3.0")
    monkeypatch.syspath_prepend(first)
    (row,) = discover_in(first, site).rows
    assert (row.recipe, row.version, row.status) == ("newer", "3.0", "ok")
    # The same name, written as installers may write it too.
    describe(tmp_path / "second" / "Good.Dist-9.dist-info", "Good.Dist", "good-1b")
    assert [row.version for row in discover_in(first, tmp_path / "second").rows] == ["3.0"]


def test_a_remainder_without_metadata_does_not_hide_the_package(site: Path, tmp_path: Path) -> None:
    rest = tmp_path / "rest" / "good_dist-2.0.dist-info"
    describe(rest, "good_dist", "good-1b")
    (rest / "METADATA").unlink()
    (row,) = discover_in(rest.parent, site).rows
    assert (row.version, row.status) == ("2.3", "ok")


@pytest.mark.parametrize("other", ["2.10", "2.2"])
def test_of_two_versions_in_one_directory_the_newer_counts(site: Path, other: str) -> None:
    describe(site / f"good_dist-{other}.dist-info", "good_dist", "good-1b", version=other)
    (row,) = discover_in(site).rows
    assert row.version == ("2.10" if other == "2.10" else "2.3")


def test_two_lines_of_one_name_in_one_distribution(site: Path) -> None:
    points = site / "good_dist-2.3.dist-info" / "entry_points.txt"
    points.write_text("[flare.recipes]\ngood-1b = good_dist\ngood-1b = elsewhere\n")
    assert {row.status for row in discover_in(site).rows} == {"duplicate: in good_dist 2.3 and good_dist 2.3"}
    points.write_text("[flare.recipes]\ngood-1b = good_dist\ngood-1b = good_dist\n")
    assert [row.status for row in discover_in(site).rows] == ["ok"]


@pytest.fixture
def editable(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree of `edited`, installed into `site` by a path file and direct_url.json."""
    source = tmp_path / "project" / "src"
    source.mkdir(parents=True)
    (source / "edited.py").write_text(plugin("edited", "edited-1b"))
    info = site / "edited-1.1.dist-info"
    describe(info, "edited", "edited-1b", version="1.1")
    url = {"url": (tmp_path / "project").as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url))
    (site / "__editable__.edited-1.1.pth").write_text(f"{source}\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    site_packages.addsitedir(str(site))
    assert str(source) in sys.path
    importlib.invalidate_caches()
    return source


def test_an_editable_install(site: Path, editable: Path) -> None:
    row = row_of(discover_in(site, editable), "edited-1b")
    assert (row.version, row.status) == ("1.1", "ok")
    assert sys.modules["edited"].__file__ == str(editable / "edited.py")


def test_an_editable_install_and_the_egg_info_in_its_source_tree(site: Path, editable: Path) -> None:
    describe(editable / "edited.egg-info", "edited", "edited-1b", "edited-old-1b", version="0.9")
    (editable / "edited.egg-info" / "requires.txt").write_text("flare-core>=99\n")
    rows = [row for row in discover_in(site, editable).rows if row.distribution == "edited"]
    assert [(row.name, row.version, row.status) for row in rows] == [("edited-1b", "1.1", "ok")]
    # Where the egg-info is all there is, it counts, with its own requirements.
    shutil.rmtree(site / "edited-1.1.dist-info")
    importlib.invalidate_caches()
    assert row_of(discover_in(site, editable), "edited-1b").status == "needs flare-core>=99"


def test_an_editable_install_whose_source_tree_is_gone(site: Path, editable: Path) -> None:
    shutil.rmtree(editable)
    assert row_of(discover_in(site, editable), "edited-1b").status.startswith(
        "broken: its module edited is not"
    )


def test_the_egg_info_of_a_removed_editable(site: Path, tmp_path: Path) -> None:
    describe(tmp_path / "src" / "removed.egg-info", "removed", "removed-1b")
    registry = discover_in(site, tmp_path / "src")
    assert row_of(registry, "removed-1b").status.startswith("broken: its module removed is not there")
    with pytest.raises(RecipeError, match=r"removed-1b, from removed 1\.0, is broken: its module removed"):
        registry.find_model("removed-1b")

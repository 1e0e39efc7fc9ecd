"""Sources that plugins bring: chosen by scheme, imported only then."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from flare import __version__
from flare.errors import CheckpointError, PluginError
from flare.prepare.progress import Progress
from flare.prepare.source_hub import HubSource
from flare.prepare.source_path import PathSource
from flare.prepare.sources import checkpoint_source, resolve_checkpoint
from flare.recipes import SOURCES

SOURCE = """
from flare.recipes import LocalCheckpoint, hookimpl

class Source:
    scheme = "{scheme}"
    asked = []

    def resolve(self, uri, pin, progress):
        self.asked.append((uri, pin))
        return LocalCheckpoint(path=__import__("pathlib").Path("/somewhere"), revision="r", uri=uri)

@hookimpl
def flare_checkpoint_sources():
    return [Source()]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def install(site: Path, module: str, scheme: str, source: str, requires: str = "flare-core") -> None:
    (site / f"{module}.py").write_text(source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    headers = f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\nRequires-Dist: {requires}\n"
    (info / "METADATA").write_text(headers)
    (info / "entry_points.txt").write_text(f"[{SOURCES}]\n{scheme} = {module}\n")
    importlib.invalidate_caches()


def test_built_in_sources() -> None:
    assert isinstance(checkpoint_source("hf://a/b@main"), HubSource)
    assert isinstance(checkpoint_source("some/path"), PathSource)
    assert checkpoint_source("PyPI://a==1/b").scheme == "pypi"


def test_a_plugin_adds_a_scheme_and_no_other_plugin_is_imported(site: Path) -> None:
    install(site, "depot_dist", "depot", SOURCE.format(scheme="depot"))
    install(site, "other_dist", "other", "raise RuntimeError('imported')")
    checkpoint_source("some/path")
    checkpoint_source("hf://a/b@main")
    assert not {"depot_dist", "other_dist"} & set(sys.modules)
    found = resolve_checkpoint(
        "depot://host/x#sha256=" + "a" * 64, pin=None, progress=Progress(Console(quiet=True))
    )
    assert found.path == Path("/somewhere")
    resolve_checkpoint("DEPOT://y", pin="b" * 64, progress=Progress(Console(quiet=True)))
    assert sys.modules["depot_dist"].Source.asked == [("depot://host/x", "a" * 64), ("DEPOT://y", "b" * 64)]
    assert "other_dist" not in sys.modules


def test_an_unknown_scheme_lists_those_of_plugins_too(site: Path) -> None:
    install(site, "depot_dist", "depot", "raise RuntimeError('imported')")
    known = "hf://, pypi://, random://, depot://, a path"
    with pytest.raises(CheckpointError, match=f"reads s3://b; known: {known}"):
        checkpoint_source("s3://b")


def test_two_distributions_with_one_scheme(site: Path) -> None:
    install(site, "one_dist", "depot", SOURCE.format(scheme="depot"))
    install(site, "two_dist", "Depot", SOURCE.format(scheme="depot"))
    with pytest.raises(CheckpointError, match=r"depot://, in two_dist 1\.0 and one_dist 1\.0; uninstall one"):
        checkpoint_source("depot://x")


def test_a_built_in_source_cannot_be_replaced(site: Path) -> None:
    install(site, "one_dist", "hf", SOURCE.format(scheme="hf"))
    with pytest.raises(CheckpointError, match=rf"hf://, in flare-core {__version__} and one_dist 1\.0"):
        checkpoint_source("hf://a/b@main")
    assert "one_dist" not in sys.modules


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(2)", "SystemExit: 2"),
        (SOURCE.format(scheme="another"), "one source of this scheme; it gives: another"),
        (SOURCE.replace("[Source()]", "Source()").format(scheme="depot"), "gave a Source, not a list"),
        (SOURCE.replace("[Source()]", "[3]").format(scheme="depot"), "AttributeError"),
        (SOURCE.replace("def resolve", "def fetch").format(scheme="depot"), "must give one source"),
        (SOURCE.replace("@hookimpl", "").format(scheme="depot"), "@hookimpl missing"),
    ],
)
def test_a_broken_plugin(site: Path, source: str, reason: str) -> None:
    install(site, "depot_dist", "depot", source)
    with pytest.raises(PluginError, match=r"depot://, from depot_dist 1\.0, is broken: ") as raised:
        checkpoint_source("depot://x")
    assert reason in str(raised.value)


def test_a_plugin_for_a_later_core(site: Path) -> None:
    install(site, "depot_dist", "depot", "1 / 0", requires="flare-core>=99")
    with pytest.raises(PluginError, match=r"depot_dist 1\.0, is broken: needs flare-core>=99"):
        checkpoint_source("depot://x")

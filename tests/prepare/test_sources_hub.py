"""`hf://`: what is fetched, what revision it has, and what happens without a network."""

from __future__ import annotations

import io
from pathlib import Path

import huggingface_hub.constants as settings
import pytest
from hub_samples import COMMIT, hub
from rich.console import Console

from flare.errors import CheckpointError
from flare.prepare.progress import Progress
from flare.prepare.source_hub import HubSource

QUIET = Progress(Console(quiet=True))
FILES = {
    "config.json": b"{}",
    "model.safetensors": bytes(5000),
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"hello",
    "preprocessor_config.json": b"{}",
    "processor_config.json": b"{}",
    "README.md": b"not needed",
    "pytorch_model.bin": b"not wanted",
    "onnx/model.safetensors": b"another format of the same weights",
}


@pytest.fixture(autouse=True)
def _empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(settings, "HF_HUB_OFFLINE", False)


def use(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    template = settings.HUGGINGFACE_CO_URL_TEMPLATE.replace(settings.ENDPOINT, address)
    monkeypatch.setattr(settings, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(settings, "ENDPOINT", address)


def test_fetches_what_a_checkpoint_is_read_from_and_then_works_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hub("owner/small", FILES) as (address, log):
        use(monkeypatch, address)
        text = io.StringIO()
        local = HubSource().resolve("hf://owner/small@main", None, Progress(Console(file=text)))
        assert text.getvalue().startswith("Fetching hf://owner/small@main: done in")
        assert text.getvalue().endswith(", 5.0 kB\n")  # the bytes of the six files
        fetched = {path.name for path in local.path.iterdir()}
        assert fetched == set(FILES) - {"README.md", "pytorch_model.bin", "onnx/model.safetensors"}
        assert (local.path / "model.safetensors").read_bytes() == bytes(5000)
        assert local.revision == COMMIT
        assert not any("onnx" in path or "bin" in path for path in log)
    # The server is gone: the branch, and the commit, come from the hub's cache.
    assert HubSource().resolve("hf://owner/small@main", None, QUIET).path == local.path
    monkeypatch.setattr(settings, "HF_HUB_OFFLINE", True)
    assert HubSource().resolve(f"hf://owner/small@{COMMIT}", None, QUIET).revision == COMMIT


def test_unknown_repositories_and_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub("owner/small", FILES) as (address, _):
        use(monkeypatch, address)
        with pytest.raises(CheckpointError, match=r"hf://owner/none@main: RepositoryNotFound"):
            HubSource().resolve("hf://owner/none@main", None, QUIET)
        with pytest.raises(CheckpointError, match=r"hf://owner/small@v9: RevisionNotFound"):
            HubSource().resolve("hf://owner/small@v9", None, QUIET)


def test_unreachable_and_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub("owner/small", FILES) as (address, _):
        pass
    use(monkeypatch, address)
    with pytest.raises(CheckpointError, match=r"cannot fetch hf://owner/small@main") as raised:
        HubSource().resolve("hf://owner/small@main", None, QUIET)
    assert "\n" not in str(raised.value)
    assert "hf download owner/small --revision main --exclude '*/*' --local-dir small" in str(raised.value)


@pytest.mark.parametrize(
    "uri", ["hf://owner/small", "hf://small@main", "hf://a/b/c@main", "hf://a/b@", "hf://a/b@m x"]
)
def test_malformed(uri: str) -> None:
    with pytest.raises(CheckpointError, match="hf://OWNER/NAME@REVISION"):
        HubSource().resolve(uri, None, QUIET)


def test_a_commit_is_the_pin() -> None:
    with pytest.raises(CheckpointError, match="pinned by its commit"):
        HubSource().resolve("hf://owner/small@main", "a" * 64, QUIET)

"""Checkpoints of the Hugging Face Hub: `hf://OWNER/NAME@REVISION`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flare.errors import CheckpointError
from flare.recipes.source import LocalCheckpoint, Phase, ProgressReporter

# What a checkpoint is read from. Subdirectories hold other formats of the same weights.
FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
    "chat_template.jinja",
)
SUBDIRECTORIES = ("*/*",)

_URI = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)")


class HubSource:
    """Fetches with huggingface_hub, so its cache, token and offline settings apply.

    The revision of the result is the commit that a branch or tag stood for.
    """

    scheme = "hf"

    def resolve(self, uri: str, pin: str | None, progress: ProgressReporter) -> LocalCheckpoint:
        """Download, or find in the hub's cache. Raises CheckpointError when neither is possible."""
        match = _URI.fullmatch(uri)
        if match is None:
            raise CheckpointError(
                f"{uri} is not of the form hf://OWNER/NAME@REVISION (for example @main)", field="checkpoint"
            )
        if pin is not None:
            raise CheckpointError(
                f"{uri}: a hub checkpoint is pinned by its commit, not by a SHA-256", field="sha256"
            )
        snapshot = _fetch(uri, match["repo"], match["revision"], progress)
        # The hub's cache names a snapshot directory by its commit.
        return LocalCheckpoint(path=snapshot, revision=snapshot.name, uri=uri)


def _fetch(uri: str, repo: str, revision: str, progress: ProgressReporter) -> Path:
    # Imported here: the hub client takes a noticeable part of a second, and most preparations are local.
    from huggingface_hub import snapshot_download

    with progress.phase(f"Fetching {uri}") as phase:
        try:
            folder = snapshot_download(
                repo,
                revision=revision,
                allow_patterns=list(FILES),
                ignore_patterns=list(SUBDIRECTORIES),
                tqdm_class=_forwarding_bar(phase),
            )
        except Exception as error:  # transport, HTTP, cache and validation errors share no base class
            reason = " ".join(str(error).split()).rstrip(".")
            raise CheckpointError(
                f"cannot fetch {uri}: {type(error).__name__}: {reason}. "
                f"Where the hub can be reached, `{_command(repo, revision)}` fetches it, and "
                "`--checkpoint DIRECTORY` reads it there",
                field="checkpoint",
            ) from error
    return Path(folder)


def _command(repo: str, revision: str) -> str:
    excluded = " ".join(f"--exclude '{pattern}'" for pattern in SUBDIRECTORIES)
    return f"hf download {repo} --revision {revision} {excluded} --local-dir {repo.rpartition('/')[2]}"


def _forwarding_bar(phase: Phase) -> Any:
    """A progress bar class for huggingface_hub that draws nothing and forwards bytes to `phase`."""
    from huggingface_hub.utils.tqdm import tqdm

    class ForwardingBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Of the two byte bars, the one called "transfer" counts before decompression.
            counts_bytes = kwargs.get("unit") == "B" and not str(kwargs.get("name")).endswith(".transfer")
            self._phase = phase if counts_bytes else None
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            if self._phase is not None:
                if self.total:
                    self._phase.expect(int(self.total))
                self._phase.advance(int(n or 0))

    return ForwardingBar

"""From a checkpoint URI to files: the four built-in sources, and the choice by scheme."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from flare import __version__
from flare.errors import CheckpointError, PluginError
from flare.prepare.source_hub import HubSource
from flare.prepare.source_index import PackageIndexSource
from flare.prepare.source_path import PathSource
from flare.prepare.source_random import RandomSource
from flare.recipes import SOURCES, CheckpointSource, LocalCheckpoint, ProgressReporter, hookimpl
from flare.recipes.metadata import PluginEntry, plugin_entries
from flare.recipes.plugin import Refusal, answers_of, asked, contained, registered

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PIN = re.compile(r"#sha256=([0-9a-f]{64})$")


@hookimpl
def flare_checkpoint_sources() -> Sequence[CheckpointSource]:
    """The sources that come with flare-core; this module is their plugin."""
    return (HubSource(), PackageIndexSource(), RandomSource(), PathSource())


def checkpoint_source(uri: str, path: Sequence[str] | None = None) -> CheckpointSource:
    """The source that reads `uri`. Of the plugins in the entry-point group `flare.sources` only the one named
    like its scheme is imported. `path` replaces `sys.path` for finding it.

    Raises: CheckpointError when nothing or more than one distribution has the scheme, PluginError when the
    one that has it is broken.
    """
    match = _SCHEME.match(uri)
    scheme = match[1].lower() if match else ""
    built_in = {source.scheme: source for source in _built_in()}
    if scheme == "":
        return built_in[scheme]  # an entry point cannot be named so
    installed = plugin_entries(SOURCES, path)
    claims = [entry for entry in installed if entry.name.lower() == scheme]
    origins = [entry.origin for entry in claims]
    if scheme in built_in:
        origins.insert(0, f"flare-core {__version__}")
    if not origins:
        known = ", ".join([*(f"{name}://" for name in built_in if name), *_listed(installed), "a path"])
        raise CheckpointError(f"no checkpoint source reads {uri}; known: {known}", field="checkpoint")
    if len(origins) > 1:
        raise CheckpointError(
            f"two checkpoint sources have the scheme {scheme}://, in {' and '.join(origins)}; uninstall one",
            field="checkpoint",
        )
    return _plugin_source(claims[0], scheme) if claims else built_in[scheme]


def resolve_checkpoint(uri: str, *, pin: str | None, progress: ProgressReporter) -> LocalCheckpoint:
    """Make the checkpoint at `uri` available on this machine.

    `pin` is the SHA-256 its content must have; the URI may carry it instead, as `#sha256=` and 64 hex digits.

    Raises: CheckpointError when no source, or more than one, has the scheme, the two pins differ, or the
    source fails; PluginError when the plugin of the scheme is broken.
    """
    bare, pin = _split_pin(uri, pin)
    return checkpoint_source(bare).resolve(bare, pin, progress)


def _built_in() -> list[CheckpointSource]:
    return asked(registered(sys.modules[__name__], "flare-core"), "flare_checkpoint_sources")


def _plugin_source(entry: PluginEntry, scheme: str) -> CheckpointSource:
    try:
        sources = answers_of(entry, "flare_checkpoint_sources")
        with contained(entry.module):
            found: list[CheckpointSource] = [one for one in sources if one.scheme.lower() == scheme]
            schemes = ", ".join(one.scheme for one in sources) or "none"
        if len(found) != 1 or not callable(getattr(found[0], "resolve", None)):
            raise Refusal(f"it must give one source of this scheme; it gives: {schemes}")
    except PluginError as error:
        raise PluginError(
            f"the checkpoint source of {scheme}://, from {entry.origin}, is broken: {error}",
            field="checkpoint",
        ) from error.__cause__
    return found[0]


def _listed(entries: Sequence[PluginEntry]) -> list[str]:
    return [f"{entry.name.lower()}://" for entry in entries]


def _split_pin(uri: str, pin: str | None) -> tuple[str, str | None]:
    match = _PIN.search(uri)
    if match is None:
        if "#sha256" in uri:
            raise CheckpointError(f"{uri}: #sha256= takes 64 lower-case hex digits", field="sha256")
        return uri, pin
    if pin is not None and pin != match[1]:
        raise CheckpointError(f"{uri} names another SHA-256 than the expected {pin}", field="sha256")
    return uri[: match.start()], match[1]

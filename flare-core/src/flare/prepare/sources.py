"""From a checkpoint URI to files: the three built-in sources, and the choice by scheme."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import pluggy

from flare.errors import CheckpointError
from flare.prepare.source_hub import HubSource
from flare.prepare.source_index import PackageIndexSource
from flare.prepare.source_path import PathSource
from flare.recipes import CheckpointSource, LocalCheckpoint, ProgressReporter, hookimpl

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PIN = re.compile(r"#sha256=([0-9a-f]{64})$")


@hookimpl
def flare_checkpoint_sources() -> Sequence[CheckpointSource]:
    """The sources that come with flare-core; this module is their plugin."""
    return (HubSource(), PackageIndexSource(), PathSource())


def checkpoint_sources(manager: pluggy.PluginManager) -> dict[str, CheckpointSource]:
    """Every source by scheme, built-in ones included. `manager` is `Registry.manager`.

    Raises: CheckpointError when two sources claim one scheme.
    """
    built_in = sys.modules[__name__]
    if not manager.is_registered(built_in):
        manager.register(built_in, name="flare-core")
    sources: dict[str, CheckpointSource] = {}
    for answer in manager.hook.flare_checkpoint_sources():
        for source in answer:
            if source.scheme in sources:
                raise CheckpointError(
                    f"two checkpoint sources claim the scheme {source.scheme!r}", field="checkpoint"
                )
            sources[source.scheme] = source
    return sources


def resolve_checkpoint(
    uri: str, *, pin: str | None, progress: ProgressReporter, manager: pluggy.PluginManager
) -> LocalCheckpoint:
    """Make the checkpoint at `uri` available on this machine.

    `pin` is the SHA-256 its content must have; the URI may carry it instead, as `#sha256=` and 64 hex digits.

    Raises: CheckpointError when no source has the scheme, the two pins differ, or the source fails.
    """
    bare, pin = _split_pin(uri, pin)
    match = _SCHEME.match(bare)
    scheme = match[1].lower() if match else ""
    sources = checkpoint_sources(manager)
    if scheme not in sources:
        known = ", ".join(f"{name}://" if name else "a path" for name in sources)
        raise CheckpointError(f"no checkpoint source reads {bare}; known: {known}", field="checkpoint")
    return sources[scheme].resolve(bare, pin, progress)


def _split_pin(uri: str, pin: str | None) -> tuple[str, str | None]:
    match = _PIN.search(uri)
    if match is None:
        if "#sha256" in uri:
            raise CheckpointError(f"{uri}: #sha256= takes 64 lower-case hex digits", field="sha256")
        return uri, pin
    if pin is not None and pin != match[1]:
        raise CheckpointError(f"{uri} names another SHA-256 than the expected {pin}", field="sha256")
    return uri[: match.start()], match[1]

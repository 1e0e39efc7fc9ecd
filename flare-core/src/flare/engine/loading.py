"""From a core's path to a loaded device: plainly, after verification, or another way that a test names."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable
from typing import cast

from flare.device import LoadOptions
from flare.device.base import Device

Loader = Callable[[str, LoadOptions], Device]

DEFAULT_LOADER = "flare.engine.loading:load_core"
VERIFYING_LOADER = "flare.verify:load_verified"


def load_core(path: str, options: LoadOptions) -> Device:
    """Open the core file at `path` and load it onto the device it was prepared for. Raises CoreError."""
    from flare.corefile import CoreReader, read_contract
    from flare.device import load_device

    reader = CoreReader(path)
    return load_device(read_contract(reader), reader, options)


def content_name(core: str) -> str:
    """A name of everything that is in a core: its digest (headers are read), or a digest of the text that a
    loader without a file takes."""
    if not os.path.isfile(core):
        return hashlib.sha256(core.encode()).hexdigest()
    from flare.corefile import CoreReader, core_digest

    with CoreReader(core) as reader:
        return core_digest(reader)


def resolve_loader(name: str) -> Loader:
    """The function called `module:function`."""
    module, _, function = name.partition(":")
    return cast(Loader, getattr(importlib.import_module(module), function))

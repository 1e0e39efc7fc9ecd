"""A device is begun while the engine process imports what will use it: hundreds of milliseconds of each.

Reads as little of the core as it takes, with the standard library alone. A file that this cannot read begins
nothing; opening the core says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

_LENGTH_BYTES = 8
_MOST_BYTES = 100_000_000  # of a header, see `flare.corefile.format`


def begin(arguments: Sequence[str]) -> None:
    """Begin the device of the core whose path is the first of the process's arguments."""
    device = stored_device(arguments[0]) if arguments else None
    if device is not None:
        from flare.device import begin_device

        begin_device(device)


def stored_device(core: str) -> str | None:
    """`Identity.device` of a core file, unchecked; None for anything else."""
    try:
        with open(core, "rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > _MOST_BYTES:
                return None
            header = json.loads(file.read(length))
        device = json.loads(header["__metadata__"]["flare.contract"])["identity"]["device"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return device if isinstance(device, str) else None

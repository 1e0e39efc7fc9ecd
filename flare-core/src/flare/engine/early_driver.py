"""The GPU's driver is initialised while this process still imports what it needs.

It takes a fifth of a second, in which it does not want the interpreter. Only the standard library is imported
here.
"""

from __future__ import annotations

import contextlib
import importlib
import threading

_MOST_HEADER = 64 << 20
_LENGTH_BYTES = 8
_GPU = b'\\"device\\":\\"sm_'  # in the contract, which is JSON in a string of JSON


def is_for_a_gpu(core: str) -> bool:
    """Whether the file at `core` looks like a core for a GPU. A hint: loading checks everything."""
    try:
        with open(core, "rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            return length <= _MOST_HEADER and _GPU in file.read(length)
    except OSError:
        return False


def initialise_early(core: str) -> threading.Thread | None:
    """Begin to initialise the driver in a thread of its own when the core is for a GPU."""
    if not is_for_a_gpu(core):
        return None
    thread = threading.Thread(target=_initialise, name="gpu-driver", daemon=True)
    thread.start()
    return thread


def _initialise() -> None:
    # What is missing here is missing when the core is loaded too, and is said then.
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module("cuda.bindings.driver").cuInit(0)

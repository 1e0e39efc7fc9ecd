"""What an operator library keeps for GPUs in its submodule `cuda`: kernels, fusions, tuning."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from torch import fx

from flare.contract import OperatorLibrary


class Choice(Protocol):
    """One operator at one shape: the candidate that runs it, and median microseconds of all."""

    operator: str
    shape: Any
    name: str
    microseconds: dict[str, float]


class Report(Protocol):
    """Choices in the order they were made, those read from the cache too; `measured` counts the others.
    `notes` are lines about kernels that could not be compared."""

    choices: Sequence[Choice]
    measured: int
    notes: Sequence[str]


@dataclass(frozen=True)
class KernelLibrary:
    """`fuse` rewrites a graph for kernels that do several operators at once; `tuning` is a context in which
    candidates are timed, and remembered below a directory. `version` changes with the library's sources."""

    fuse: Callable[[fx.Graph], int] | None
    tuning: Callable[[Path], AbstractContextManager[Report | None]]
    version: str


def load_kernels(library: OperatorLibrary) -> KernelLibrary:
    """Import the kernels of an operator library, which registers them. It may have no fusions, and choose
    nothing."""
    module = importlib.import_module(library.module)
    name = f"{library.module}.cuda"
    if _import(name) is None:
        return KernelLibrary(None, lambda cache: nullcontext(), _version(module))
    fusion, tuning = _import(f"{name}.fusion"), _import(f"{name}.tuning")
    return KernelLibrary(
        fuse=None if fusion is None else fusion.fuse,
        tuning=(lambda cache: nullcontext()) if tuning is None else tuning.tuning,
        version=_version(module),
    )


def _import(name: str) -> ModuleType | None:
    return importlib.import_module(name) if importlib.util.find_spec(name) is not None else None


def _version(module: ModuleType) -> str:
    """A digest of a package's sources."""
    digest = hashlib.sha256()
    for root in getattr(module, "__path__", ()):
        for source in sorted(Path(root).rglob("*.py")):
            digest.update(f"{source.relative_to(root)}\0".encode() + source.read_bytes())
    return digest.hexdigest()

"""Times of candidates, kept on disk: one file for a GPU and the versions of what builds kernels.

What a file holds is used only under the same GPU model, compute capability, number of processors, versions of
torch, CUDA and Triton, operator, shape and definition of every candidate.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

logger = logging.getLogger(__name__)

_VERSION = 1  # of how times are measured, and of the file


class Selections:
    """The file in `directory` for this machine. One that cannot be read, or is another machine's, counts as
    empty; the log says so."""

    def __init__(self, directory: Path, machine: Mapping[str, Any] | None = None) -> None:
        self._machine = dict(this_machine() if machine is None else machine)
        name = hashlib.sha256(json.dumps(self._machine, sort_keys=True).encode()).hexdigest()[:16]
        self.path = directory / f"{name}.json"
        self._entries = self._read()
        self._added: dict[str, dict[str, float]] = {}

    def find(self, label: str, state: str) -> dict[str, float] | None:
        """Microseconds by candidate for `label`, an operator and shape, if candidates are defined as then."""
        times = self._entries.get(f"{label} {state}")
        return None if times is None else dict(times)

    def add(self, label: str, state: str, times: Mapping[str, float]) -> None:
        """Remember times; `write` keeps them."""
        self._added[f"{label} {state}"] = dict(times)

    def write(self) -> None:
        """Add what is new to the file, which others may have changed since. A directory that cannot be
        written costs the next preparation its time, and this one nothing: the log says so."""
        if not self._added:
            return
        document = {"machine": self._machine, "times": {**self._read(), **self._added}}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as file:
                json.dump(document, file, indent=1)
            os.replace(file.name, self.path)
        except OSError as error:
            logger.warning("choices of kernels are not kept: %s", error)

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            document = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            logger.warning("%s is ignored, kernels are timed again: %s", self.path, error)
            return {}
        if not _is_complete(document, self._machine):
            logger.warning("%s is ignored, kernels are timed again: not of this machine or form", self.path)
            return {}
        times: dict[str, dict[str, float]] = document["times"]
        return times


def this_machine() -> dict[str, Any]:
    """What times depend on beside operator, shape and candidates."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "version": _VERSION,
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "processors": properties.multi_processor_count,
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "triton": triton.__version__,
    }


def definition(candidates: Sequence[tuple[str, Callable[..., Any]]]) -> str:
    """A digest of how candidates are defined: names, bound arguments, and the sources of their modules."""
    digest = hashlib.sha256()
    for name, call in candidates:
        bound: list[object] = [name]
        while isinstance(call, functools.partial):
            bound += [_constant(call.args), _constant(sorted(call.keywords.items()))]
            call = call.func
        module = getattr(call, "__module__", None) or type(call).__module__
        bound += [module, getattr(call, "__qualname__", type(call).__qualname__)]
        digest.update(f"{bound!r}\0{_source(module)}\0".encode())
    return digest.hexdigest()[:16]


def _constant(value: object) -> object:
    """What a bound argument says of a candidate: operands and other objects by their kind."""
    if value is None or isinstance(value, bool | int | float | str | torch.dtype):
        return value
    if isinstance(value, list | tuple):
        return [_constant(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = [(f.name, _constant(getattr(value, f.name))) for f in dataclasses.fields(value)]
        return [type(value).__qualname__, *fields]
    return getattr(value, "__qualname__", type(value).__qualname__)


@functools.lru_cache(maxsize=64)
def _source(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def _is_complete(document: Any, machine: Mapping[str, Any]) -> bool:
    return (
        isinstance(document, dict)
        and document.get("machine") == machine
        and isinstance(times := document.get("times"), dict)
        and all(
            isinstance(entry, dict) and all(isinstance(value, int | float) for value in entry.values())
            for entry in times.values()
        )
    )

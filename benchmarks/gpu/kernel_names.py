"""From the names of kernels to operators, and from a graph's sequence of kernels to layers."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import NamedTuple

# Kernels that libraries bring, by what their names hold.
_LIBRARIES = (
    ("nvjet", "linear (cuBLAS)"),
    ("gemm", "linear (cuBLAS)"),
    ("gemv", "linear (cuBLAS)"),
    ("cutlass", "linear (cuBLAS)"),
    ("splitKreduce", "linear (cuBLAS)"),
    ("xqa", "attention (FlashInfer)"),
    ("fmha", "attention (FlashInfer)"),
    ("flashinfer", "attention (FlashInfer)"),
    ("triton_", "fused by the compiler"),
    ("at::native", "tensor operations (torch)"),
    ("Memcpy", "copy"),
    ("Memset", "fill"),
)


class Layers(NamedTuple):
    """`count` equal parts of `length` kernels each, the first at `start`; what is before and behind is no
    layer."""

    start: int
    length: int
    count: int

    def of(self, position: int) -> int | None:
        """The layer of the kernel at `position`."""
        layer = (position - self.start) // self.length if self.length else self.count
        return layer if position >= self.start and layer < self.count else None


def find_layers(names: Sequence[str]) -> Layers:
    """The repetition that covers most of `names`, of the shortest part that does; no layers in a sequence
    that repeats nothing at least twice."""
    best, covered = Layers(len(names), 0, 0), 0
    for length in range(1, len(names) // 2 + 1):
        start, run = _longest_run([a == b for a, b in zip(names, names[length:], strict=False)])
        count = (run + length) // length
        # The shortest part of equal cover: its multiples repeat as well. One kernel alone is no layer.
        if count > 1 and length > 1 and count * length > covered:
            best, covered = Layers(start, length, count), count * length
    return best


def _longest_run(values: Sequence[bool]) -> tuple[int, int]:
    """Begin and length of the longest run of True."""
    best = (0, 0)
    begin = 0
    for position, value in enumerate([*values, False]):
        if not value:
            if position - begin > best[1]:
                best = (begin, position - begin)
            begin = position + 1
    return best


class OperatorNames:
    """Names of operators by kernels: those of a package are called like the module that defines them."""

    def __init__(self, package: str = "flare_components.ops.cuda") -> None:
        self._modules: dict[str, str] = {}
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if hasattr(value, "arg_names") and getattr(value, "__module__", None) == module.__name__:
                    self._modules[name] = found.name.removeprefix(f"{package}.")

    def of(self, kernel: str) -> str:
        """The operator of a kernel; its own name when nothing is known of it."""
        if kernel in self._modules:
            return f"{self._modules[kernel]}.{kernel}"
        for part, operator in _LIBRARIES:
            if part in kernel:
                return operator
        return kernel[:60]

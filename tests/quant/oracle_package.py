"""CPU references of number formats out of a FlashInfer wheel, which is read and not installed."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

_FOLDERS = (
    "flashinfer/batch_invariant/",
    "flashinfer/trace/",
    "flashinfer/experimental/b12x/_lib/quant/",
)
# Packages whose own files would import what only a GPU needs: only their folders are known.
_PACKAGES = (
    "flashinfer",
    "flashinfer.batch_invariant",
    "flashinfer.batch_invariant.fp_interface",
    "flashinfer.batch_invariant.quantization",
    "flashinfer.trace",
    "flashinfer.trace.templates",
)
# What the modules of packed scales build kernels with; the functions used here call none of it.
_KERNELS = (
    "cuda",
    "cuda.bindings",
    "cuda.bindings.driver",
    "cutlass",
    "cutlass.cute",
    "cutlass.cutlass_dsl",
    "b12x._lib.compiler",
    "b12x._lib.program_cache",
    "b12x._lib.runtime_control",
    "b12x._lib.utils",
)


class Oracles:
    """The modules of wheel `wheel`, unpacked in `directory`. Only for a process that does nothing else: other
    imports of these names would find these."""

    def __init__(self, wheel: Path, directory: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(_FOLDERS)]
            archive.extractall(directory, [name for name in names if name.endswith(".py")])
        for name in _PACKAGES:
            _package(name, directory / name.replace(".", "/"))
        b12x = directory / "flashinfer/experimental/b12x"
        for name, place in (
            ("b12x", b12x),
            ("b12x._lib", b12x / "_lib"),
            ("b12x._lib.quant", b12x / "_lib/quant"),
        ):
            _package(name, place)
        for name in _KERNELS:
            sys.modules[name] = MagicMock(name=name)
        self.exact = importlib.import_module("flashinfer.batch_invariant.fp_interface.exact")
        self.nvfp4 = importlib.import_module("flashinfer.batch_invariant.quantization.nvfp4_reference")
        self.mx = importlib.import_module("flashinfer.batch_invariant.quantization.mx_reference")
        self.gemm = importlib.import_module("flashinfer.trace.templates.gemm")
        self.blocks = importlib.import_module("flashinfer.trace.templates._init_helpers")
        self.csf = importlib.import_module("b12x._lib.quant.nvfp4_csf")
        self.packed_csf = importlib.import_module("b12x._lib.quant.nvfp4_csf_packed")
        self.bit_csf = importlib.import_module("b12x._lib.quant.mxfp4_csf")


def _package(name: str, place: Path) -> None:
    module = ModuleType(name)
    module.__path__ = [str(place)]
    sys.modules[name] = module

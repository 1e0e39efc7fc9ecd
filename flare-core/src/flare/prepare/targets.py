"""The choice of a preparation target, and what to install where it cannot be used."""

from __future__ import annotations

import importlib.util

from flare.errors import DeviceError
from flare.prepare.diagnostics import Diagnostics
from flare.prepare.target import PreparationTarget

TARGETS = ("cpu", "cuda")
_CUDA_PACKAGES = ("cuda.bindings", "triton")


def check_target(kind: str, distribution: str, diagnostics: Diagnostics | None = None) -> None:
    """Raise DeviceError when this installation or machine cannot prepare for `kind`, one of `TARGETS`, or
    the kind does not have one of the diagnostics.

    `distribution` is the recipe's, whose extra brings what is missing. Imports nothing large.
    """
    if kind != "cuda":
        if diagnostics not in (None, Diagnostics()):
            raise DeviceError(
                "--relocatable, --no-compile, --no-trace and --eager are for --device cuda: for "
                f"{kind} nothing is captured",
                field="device",
            )
        return
    missing = [name for name in _CUDA_PACKAGES if not _installed(name)]
    if missing:
        raise _not_installed(", ".join(missing), distribution)
    from flare.device.cuda.driver import CudaDriver

    CudaDriver()


def choose_target(kind: str, distribution: str, diagnostics: Diagnostics | None = None) -> PreparationTarget:
    """The target for `kind`, ready for use. Raises DeviceError as `check_target`."""
    check_target(kind, distribution, diagnostics)
    if kind == "cpu":
        from flare.prepare.cpu_target import CpuTarget

        return CpuTarget()
    import torch

    if torch.version.cuda is None:
        raise _not_installed("torch for CUDA (this one is for the CPU only)", distribution)
    from flare.prepare.cuda_target import CudaTarget

    return CudaTarget(diagnostics)


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package
        return False


def _not_installed(what: str, distribution: str) -> DeviceError:
    return DeviceError(
        f'preparing for a GPU needs {what}: pip install "{distribution}[cuda]"', field="device"
    )

"""Where programs run: memory, executables and their completion, per device kind.

Imports nothing large: a process begins its device (`begin_device`) before it imports what uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flare.device.options import LoadOptions
from flare.errors import CoreError, DeviceError

if TYPE_CHECKING:
    from flare.contract import PreparedContract
    from flare.device.base import Device
    from flare.device.cpu_memory import TensorSource

__all__ = [
    "KINDS",
    "LoadOptions",
    "arithmetic_conditions",
    "begin_device",
    "check_device",
    "family",
    "load_device",
]

KINDS = ("cpu", "sim", "cuda")
"""Families of devices (see `family`)."""


def family(device: str) -> str:
    """The family of `Identity.device`: every GPU architecture (`sm_90`) is `cuda`."""
    return "cuda" if device.startswith("sm_") else device


def check_device(device: str) -> None:
    """Raise CoreError when this machine has no device of the family of `Identity.device`. Loads nothing."""
    kind = family(device)
    if kind not in KINDS:
        raise CoreError(
            f"the core is for device {device!r}, this installation has {', '.join(KINDS)}",
            field="identity.device",
        )
    if kind == "cuda":
        from flare.device.cuda.driver import CudaDriver

        try:
            CudaDriver()
        except DeviceError as error:
            raise CoreError(f"the core is for device {device!r}: {error}", field="identity.device") from error


def begin_device(device: str) -> None:
    """Start what takes long, of a device that `load_device` will load a core onto in this process, and needs
    nothing of the core. What fails is said by `load_device`."""
    if family(device) == "cuda":
        from flare.device.cuda import opening

        opening.begin()


def load_device(
    contract: PreparedContract, source: TensorSource, options: LoadOptions | None = None
) -> Device:
    """Load a core onto the device kind it was prepared for.

    Raises CoreError when the core does not fit here, CapacityError when `options` or the device's memory do
    not fit the core, DeviceError when this machine lacks what it needs. `options` mean nothing to the sim
    device.
    """
    options = options or LoadOptions()
    kind = family(contract.identity.device)
    if kind == "sim":
        from flare.device.sim import SimDevice, StoredImage

        return SimDevice(StoredImage(contract.model_dump_json(), source))
    if kind == "cpu":
        from flare.device.cpu import CpuDevice

        return CpuDevice(contract, source, options)
    if kind == "cuda":
        from flare.device.cuda.cuda_device import CudaDevice

        return CudaDevice(contract, source, options)
    raise CoreError(
        f"no device of kind {kind!r} in this installation, which has {', '.join(KINDS)}",
        field="identity.device",
    )


def arithmetic_conditions(device: str) -> dict[str, str]:
    """What decides the last bits of results of an `Identity.device` on this machine, by name; empty for a
    device whose results are exact everywhere. Two runs under equal conditions may be compared token by token.
    Raises DeviceError for a GPU where there is none."""
    kind = family(device)
    if kind == "cpu":
        from flare.device import cpu_host

        return cpu_host.arithmetic_conditions()
    if kind == "cuda":
        from flare.device.cuda import gpu_host

        return gpu_host.arithmetic_conditions()
    return {}

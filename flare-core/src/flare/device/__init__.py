"""Where programs run: memory, executables and their completion, per device kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flare.device.base import Device, Frame
from flare.errors import CoreError

if TYPE_CHECKING:
    from flare.contract import PreparedContract
    from flare.device.cpu_memory import TensorSource

__all__ = ["KINDS", "Device", "Frame", "arithmetic_conditions", "load_device"]

KINDS = ("cpu", "sim")
"""Device kinds of this installation (`Identity.device`)."""


def load_device(contract: PreparedContract, source: TensorSource, *, threads: int | None = None) -> Device:
    """Load a core onto the device kind it was prepared for.

    `threads` bounds the CPU device's compute threads. Raises CoreError when the core does not fit here.
    """
    kind = contract.identity.device
    if kind == "sim":
        from flare.device.sim import SimDevice, StoredImage

        return SimDevice(StoredImage(contract.model_dump_json(), source))
    if kind == "cpu":
        from flare.device.cpu import CpuDevice

        return CpuDevice(contract, source, threads=threads)
    raise CoreError(
        f"no device of kind {kind!r} in this installation, which has {', '.join(KINDS)}",
        field="identity.device",
    )


def arithmetic_conditions(kind: str) -> dict[str, str]:
    """What decides the last bits of results on this machine, by name; empty for a device whose results are
    exact everywhere. Two runs under equal conditions may be compared token by token."""
    if kind == "cpu":
        from flare.device import cpu_host

        return cpu_host.arithmetic_conditions()
    return {}

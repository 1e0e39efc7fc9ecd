"""Where programs run: memory, executables and their completion, per device kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flare.device.base import Device, Frame
from flare.errors import CoreError

if TYPE_CHECKING:
    from flare.contract import PreparedContract
    from flare.device.cpu_memory import TensorSource

__all__ = ["Device", "Frame", "load_device"]


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
    raise CoreError(f"no device of kind {kind!r} in this installation", field="identity.device")

"""What of this machine decides the last bits of a GPU's results: kernels are in the core, so the GPU."""

from __future__ import annotations

from flare.device.cuda.context import Context
from flare.device.cuda.driver import CudaDriver, Driver


def arithmetic_conditions(driver: Driver | None = None) -> dict[str, str]:
    """Name and architecture of GPU 0. Raises DeviceError without one."""
    context = Context(driver or CudaDriver())
    try:
        return {"gpu": context.name, "architecture": context.architecture}
    finally:
        context.close()

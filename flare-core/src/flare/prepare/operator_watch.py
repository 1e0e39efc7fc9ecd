"""Names the operator that fails on a device: its shapes and the architecture belong to the message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flare.device.torch_types import CONTRACT_DTYPES
from flare.errors import DeviceError


class OperatorWatch(TorchDispatchMode):  # type: ignore[misc]
    """While active, an operator that has no kernel for the device, or fails there, raises DeviceError."""

    def __init__(self, program: str, architecture: str) -> None:
        super().__init__()
        self._program, self._architecture = program, architecture

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except (DeviceError, torch.cuda.OutOfMemoryError):
            raise
        except Exception as error:
            name = getattr(func, "_schema", None)
            operator = name.name if name is not None else str(func)
            missing = isinstance(error, NotImplementedError)
            what = "has no kernel" if missing else f"failed ({_first_line(error)})"
            raise DeviceError(
                f"program {self._program}: operator {operator} {what} for "
                f"{', '.join(_shapes(args)) or 'no tensors'} on {self._architecture}",
                field=operator,
            ) from error


def _shapes(operands: Iterable[Any]) -> list[str]:
    """`BF16[16, 64]` of every tensor among operands and lists of them."""
    found = []
    for operand in operands:
        if isinstance(operand, torch.Tensor):
            dtype = CONTRACT_DTYPES.get(operand.dtype)
            found.append(f"{dtype.value if dtype else operand.dtype}{list(operand.shape)}")
        elif isinstance(operand, list | tuple):
            found += _shapes(operand)
    return found


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__

"""What fake kernels of packed operators say about operands."""

from __future__ import annotations

import torch
from torch import Tensor


def check_operand(name: str, operand: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Raises RuntimeError naming an operand of another type or shape."""
    torch._check(
        operand.dtype == dtype and tuple(operand.shape) == shape,
        lambda: f"{name} is {dtype} {list(shape)}, not {operand.dtype} {list(operand.shape)}",
    )


def check_linear(x: Tensor, columns: int, rows: int, bias: Tensor | None) -> Tensor:
    """The fake result [N, rows] of a product of x [N, columns]."""
    torch._check(x.dim() == 2 and x.shape[1] == columns, lambda: f"x is [N, {columns}]")
    torch._check(x.dtype in (torch.bfloat16, torch.float32), lambda: f"x is {x.dtype}")
    if bias is not None:
        check_operand("bias", bias, x.dtype, (rows,))
    return x.new_empty(x.shape[0], rows)

"""Operands moved to the GPU as they lie in memory, and results compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def moved(operands: Sequence[Any], device: str) -> tuple[Any, ...]:
    """Copies of all operands; views of one storage stay views of one storage."""
    storages: dict[int, Tensor] = {}

    def move(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        storage = x.untyped_storage()
        if storage.data_ptr() not in storages:
            whole = torch.empty(0, dtype=torch.uint8, device=x.device).set_(storage)
            storages[storage.data_ptr()] = whole.to(device, copy=True)
        flat = storages[storage.data_ptr()]
        typed = torch.empty(0, dtype=x.dtype, device=device).set_(flat.untyped_storage())
        return typed.as_strided(x.shape, x.stride(), x.storage_offset())

    return tuple(move(x) for x in operands)


def refill(target: Sequence[Any], source: Sequence[Any]) -> None:
    """Put the values of `source` into the tensors `target`, storages as a whole."""
    for to, value in zip(target, source, strict=True):
        if isinstance(to, Tensor):
            to.copy_(value)


def poison() -> None:
    """Free memory of the allocator holds NaN from now on."""
    for size in (1 << 9, 1 << 14, 1 << 19, 1 << 21, 1 << 24):
        blocks = [torch.full((size,), 255, dtype=torch.uint8, device="cuda") for _ in range(8)]
        del blocks


def as_list(results: Any) -> list[Tensor]:
    return [] if results is None else [results] if isinstance(results, Tensor) else list(results)


def assert_same(actual: Any, expected: Any, tolerance: float | None) -> None:
    for a, b in zip(as_list(actual), as_list(expected), strict=True):
        if not isinstance(a, Tensor):
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        exact = tolerance is None or not a.is_floating_point()
        bound = 0.0 if exact else tolerance
        torch.testing.assert_close(a.cpu(), b.cpu(), atol=bound, rtol=bound, equal_nan=True)

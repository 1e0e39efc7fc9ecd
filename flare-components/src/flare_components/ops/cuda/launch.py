"""Sizes of launches."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def cdiv(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The least power of two not below n, at least 1."""
    return 1 << max(n - 1, 0).bit_length()


@lru_cache(maxsize=8)
def _processors(device: torch.device) -> int:
    # Triton's interpreter runs kernels on the CPU, one program after another.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def processors(tensor: Tensor) -> int:
    """Multiprocessors of the tensor's device."""
    return _processors(tensor.device)


@lru_cache(maxsize=8)
def _shared(device: torch.device) -> int:
    if device.type != "cuda":
        return 1 << 30
    nbytes: int = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    return nbytes


def roomy(tensor: Tensor) -> bool:
    """Whether a program may have the shared memory of a data-centre chip (227 KiB; others have 99)."""
    return _shared(tensor.device) >= 160 << 10

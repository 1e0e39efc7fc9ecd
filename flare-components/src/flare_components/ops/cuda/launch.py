"""Sizes of launches, and kernels that start before their inputs are there."""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


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


@lru_cache(maxsize=8)
def _overlaps(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def overlap(x: Tensor) -> dict[str, bool]:
    """Launch options of a kernel that calls `await_inputs(OVERLAP)` and has rows x [N, ...]: one row's may
    start while the kernel before it runs (programmatic dependent launch, compute capability 9.0 and higher).
    More rows take kernels of few programs, which would crowd on the multiprocessors that are free first: on
    an H200 products of 2 and 4 rows then take longer."""
    enabled = x.shape[0] == 1 and _overlaps(x.device)
    return {"OVERLAP": enabled, "launch_pdl": enabled}


@triton.jit
def await_inputs(OVERLAP: tl.constexpr):
    """Every program calls this before it reads or writes anything that a kernel before it may touch; only
    what no kernel ever writes (weights) may be read earlier. The kernel after this one may start from here
    on."""
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()

"""Times of kernels as programs run them: in a captured graph, on operands that no cache holds any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import median
from typing import Any

import torch
from torch import Tensor

Operands = tuple[Any, ...]

_CACHES = 2.5  # L2 caches full of operands that are used before one comes again
_MOST_SETS = 64
_SPAN = 2000.0  # microseconds of one replay
_CALLS = (4, 64)
_REPLAYS = 7


def rotation(operands: Operands) -> list[Operands]:
    """Copies of `operands` that together exceed the L2 cache, with random contents where types allow.

    Operands too large to be copied are used as they are.
    """
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    nbytes = sum(map(_span_bytes, tensors))
    device = tensors[0].device
    free, _ = torch.cuda.mem_get_info(device)
    sets = rotations(device, nbytes)
    if sets * nbytes > free // 4:
        return [operands]
    generator = torch.Generator(device).manual_seed(1)
    return [tuple(_like(o, generator) if isinstance(o, Tensor) else o for o in operands) for _ in range(sets)]


def rotations(device: torch.device, nbytes: int) -> int:
    """How many sets of operands of `nbytes` together exceed the L2 cache."""
    wanted = _CACHES * torch.cuda.get_device_properties(device).L2_cache_size
    return min(int(wanted // max(nbytes, 1)) + 1, _MOST_SETS)


def measure(call: Callable[..., Any], sets: Sequence[Operands]) -> float:
    """Median microseconds of a call, over a graph of calls that take `sets` in turn."""
    stream = _stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for operands in (sets[0], sets[-1]):
            call(*operands)
        once = _elapsed(lambda: call(*sets[0]))
        calls = int(min(max(_SPAN / max(once, 1.0), _CALLS[0]), _CALLS[1]))
        calls = max(calls, min(len(sets), _CALLS[1]))
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            for index in range(calls):
                call(*sets[index % len(sets)])
        finally:
            graph.capture_end()
        graph.replay()
        spans = [_elapsed(graph.replay) for _ in range(_REPLAYS)]
    torch.cuda.current_stream().wait_stream(stream)
    return median(spans) / calls


@lru_cache(maxsize=8)
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # one, because cuBLAS keeps a workspace for each


def _elapsed(work: Callable[[], object]) -> float:
    """Microseconds on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return 1e3 * float(begin.elapsed_time(end))


def _like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    if tensor.dtype in (torch.bfloat16, torch.float16, torch.float32):
        # Products of zeros take less power, and so less time.
        return copy.normal_(0, 0.1, generator=generator)
    return copy.copy_(tensor)


def _span_bytes(tensor: Tensor) -> int:
    if not tensor.numel():
        return 0
    last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()

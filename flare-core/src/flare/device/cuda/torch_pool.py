"""Torch inside the arena: memory pools, buffers as tensors, capture. For preparation; imports torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import torch

from flare.contract import Region
from flare.device.cuda.address_book import AddressBook
from flare.device.cuda.arena import Arena

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class TorchPool:
    """A torch memory pool whose segments are buffers `NAME/0`, `NAME/1`, … of an arena's region.

    Use `pool` with `torch.cuda.use_mem_pool`, or `id` for a capture, not both at a time. Segments are never
    given back. When the arena refuses, torch raises OutOfMemoryError and `error` says why.
    """

    def __init__(self, arena: Arena, region: Region, name: str) -> None:
        self._arena, self._region, self._name = arena, region, name
        self.buffers: list[str] = []
        self.error: Exception | None = None
        # Kept: torch holds only their addresses.
        self._callbacks = (_Allocate(self._allocate), _Free(self._free))
        allocate, free = (ctypes.cast(callback, ctypes.c_void_p).value for callback in self._callbacks)
        self._allocator = torch._C._cuda_customAllocator(allocate, free)
        self.pool = torch.cuda.MemPool(self._allocator)

    @property
    def id(self) -> tuple[int, int]:
        """The pool for `torch.cuda.graph`."""
        pool_id: tuple[int, int] = self.pool.id
        return pool_id

    def _allocate(self, nbytes: int, device: int, stream: Any) -> int | None:
        name = f"{self._name}/{len(self.buffers)}"
        granularity = self._arena.granularity
        rounded = -(-nbytes // granularity) * granularity
        try:
            address = self._arena.allocate(name, self._region, rounded, granularity)
        except Exception as error:  # an exception would be lost on its way through C
            self.error = error
            return None
        self.buffers.append(name)
        return address

    def _free(self, address: int, nbytes: int, device: int, stream: Any) -> None:
        """A graph may hold the address: nothing is freed before the arena closes."""


class Booked(Protocol):
    """What holds memory under names: an arena, or a device."""

    @property
    def book(self) -> AddressBook:
        """Where buffers are."""


class _Bytes:
    """Device memory as torch reads it: the CUDA array interface, version 3."""

    def __init__(self, owner: Booked, address: int, nbytes: int) -> None:
        self._owner = owner  # the tensor keeps it alive
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def buffer_tensor(owner: Booked, name: str) -> torch.Tensor:
    """The bytes of a named buffer as u8[nbytes] on the GPU, sharing its memory."""
    span = owner.book.span(name)
    return torch.as_tensor(_Bytes(owner, span.start, span.nbytes), device="cuda")


def capture(run: Callable[[], object], pool: TorchPool, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """Capture `run` on `stream` with its temporaries in `pool`; warmed up before, by the caller, on the same
    stream, so that workspaces exist. The graph of `raw_cuda_graph()` stays readable; replay works."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.no_grad(), torch.cuda.graph(graph, pool=pool.id, stream=stream):
        run()
    graph.instantiate()
    return graph

"""Addresses that hide in memory: words of buffers that point into an arena.

Parameters are not all that a kernel reads: a program or a library may keep pointers in its memory. A process
that serves finds zeros in a program's state, and in a workspace what was there when it was exported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from flare.contract import BufferSpec, Initial
from flare.device.cuda.arena import Arena
from flare.device.cuda.captured import GraphExportError
from flare.device.cuda.layout import ArenaLayout
from flare.device.cuda.torch_pool import buffer_tensor

_CHUNK = 1 << 25  # words looked at together: comparing them takes a quarter of their size

Found = Mapping[tuple[str, int], int]
"""Word by buffer and byte offset."""


def scan(arena: Arena, names: Iterable[str], layout: ArenaLayout) -> Found:
    """Words of named buffers of `arena`, as far as they have memory, that are addresses of `layout`."""
    found: dict[tuple[str, int], int] = {}
    for name in names:
        data = buffer_tensor(arena, name)
        words = data[: arena.backed(name) // 8 * 8].view(torch.int64)
        found |= {(name, at): word for at, word in addresses_in(words, layout).items()}
    return found


def addresses_in(words: torch.Tensor, layout: ArenaLayout) -> dict[int, int]:
    """Those of i64[n] that are addresses of `layout`, by byte offset."""
    found: dict[int, int] = {}
    for begin in range(0, len(words), _CHUNK):
        part = words[begin : begin + _CHUNK]
        places = ((part >= layout.base) & (part < layout.base + layout.nbytes)).nonzero().flatten()
        values = part[places].tolist()
        found |= {8 * (begin + place): value for place, value in zip(places.tolist(), values, strict=True)}
    return found


def zero_buffers(buffers: Iterable[BufferSpec]) -> list[str]:
    """Buffers that a process that serves finds empty."""
    return [b.name for b in buffers if b.initial is Initial.ZERO and b.nbytes >= 8]


def check_state(first: Found, second: Found, names: Iterable[str], distance: int) -> None:
    """Raise GraphExportError for an address in one of the buffers `names`: a word that is `distance` larger
    in the second capture, which was made so much higher. A word that is the same in both is a number."""
    state = frozenset(names)
    for (name, at), word in first.items():
        if name in state and second.get((name, at)) == word + distance:
            raise GraphExportError(
                f"byte {at} of buffer {name} holds an address ({word:#x}) after programs ran without lanes: "
                "a process that serves will not have it there; let a program write what programs read",
                field=name,
            )


def address_in_scratch(first: Found, second: Found, stale: Found, distance: int) -> str:
    """What is wrong with moving scratch memory, which is stored as it is: an address in it, or "".

    `first` and `second` are words that point into the arena of their capture, `stale` those of the second
    capture's scratch that point into the first arena: numbers, or addresses that a library kept.
    """
    moved = {key: word for key, word in first.items() if second.get(key) == word + distance}
    for (name, at), word in {**stale, **moved}.items():
        return f"byte {at} of buffer {name} holds {word:#x}, an address of the arena"
    return ""

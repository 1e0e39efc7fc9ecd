"""Payload of a file on disk: zero-copy bytes, checked blocks, parallel upload, full verification.

Bytes to be checked are read with `pread` into the caller's memory and hashed there: a disk error is then
an exception (through a mapping it would be SIGBUS), the hash covers what the caller will use, and no page
tables are built for a hundred gigabytes that are read once.
"""

from __future__ import annotations

import builtins
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from flare.corefile.format import DIGEST_BYTES, sha256
from flare.corefile.layout import Layout, Placed, Span
from flare.corefile.tensor import TensorSpec
from flare.errors import CoreError

Progress = Callable[[int], None]
Job = TypeVar("Job")
Result = TypeVar("Result")


def default_threads() -> int:
    """Threads that copy and hash: the processors this process may use, at most 16 (memory is the limit)."""
    return min(len(os.sched_getaffinity(0)), 16)


class TensorStore:
    """Tensors of an open file. Safe to use from several threads; borrows the descriptor and the digests."""

    def __init__(self, fd: int, layout: Layout, data_start: int, digests: bytearray | builtins.bytes) -> None:
        self._fd = fd
        self._layout = layout
        self._start = data_start
        self._digests = memoryview(digests)
        self._bytes = memoryview(mmap.mmap(fd, data_start + layout.nbytes, access=mmap.ACCESS_READ))
        self.tensors: Mapping[str, TensorSpec] = {p.spec.name: p.spec for p in layout.tensors}

    def bytes(self, name: str) -> memoryview:
        """The mapped bytes of a tensor: zero copy, read-only, *not* verified."""
        placed = self.placed(name)
        return self._bytes[self._start + placed.begin : self._start + placed.end]

    def blocks(self, name: str) -> Sequence[tuple[int, int]]:
        """Bytes [begin, end) of every checksum block of a tensor."""
        placed = self.placed(name)
        return [placed.block(index) for index in range(placed.blocks)]

    def read_block(self, name: str, index: int, out: memoryview | None = None) -> memoryview:
        """Block `index` of a tensor, verified, in `out` (at least as long) or new memory.

        Raises CoreError naming a damaged tensor, IndexError when there is no such block.
        """
        placed = self.placed(name)
        if not 0 <= index < placed.blocks:
            raise IndexError(f"block {index} of {placed.blocks} in {name}")
        begin, end = placed.block(index)
        buffer = memoryview(bytearray(end - begin)) if out is None else _flat(out)[: end - begin]
        assert len(buffer) == end - begin, "the block does not fit into `out`"
        if not self._read_checked(placed, index, buffer):
            raise CoreError(f"tensor {name} is damaged in block {index}", field=name)
        return buffer

    def read_blocks(self, name: str, first: int, count: int, out: memoryview) -> None:
        """`count` blocks of a tensor from `first` on, all of which exist, with one access to the file. They
        are verified in `out`, which is as long. Raises CoreError naming a damaged tensor."""
        placed = self.placed(name)
        start = first * placed.block_bytes
        self._pread(out, self._start + placed.begin + start)
        for index in range(first, first + count):
            begin, end = placed.block(index)
            if not self._whole(placed, index, out[begin - start : end - start]):
                raise CoreError(f"tensor {name} is damaged in block {index}", field=name)

    def load(self, name: str, out: memoryview | None = None, *, verify: bool = True) -> memoryview:
        """Copy one whole tensor into `out` (exactly as long) or new memory, verified unless told otherwise.

        Raises CoreError naming a damaged tensor, or one whose size is not that of `out`.
        """
        buffer = memoryview(bytearray(self.placed(name).spec.nbytes)) if out is None else _flat(out)
        if verify:
            self.upload([(name, buffer)], threads=1)
        else:
            placed = self._fitting(name, buffer)
            self._pread(buffer, self._start + placed.begin)
        return buffer

    def upload(
        self,
        requests: Iterable[tuple[str, memoryview]],
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copy whole tensors into writable destinations of exactly their size, verifying every block.

        `progress` is called in this thread with the number of bytes finished since its last call.
        Raises CoreError naming an unknown, ill-fitting (before any copy) or damaged tensor; destinations
        then hold nothing to rely on.
        """
        flat = [(name, _flat(out)) for name, out in requests]
        targets = [(self._fitting(name, out), out) for name, out in flat]
        jobs = [(placed, index, out) for placed, out in targets for index in range(placed.blocks)]

        def copy(job: tuple[Placed, int, memoryview]) -> int:
            placed, index, out = job
            begin, end = placed.block(index)
            self.read_block(placed.spec.name, index, out[begin:end])
            return end - begin

        for done in _parallel(copy, jobs, threads):
            if progress is not None:
                progress(done)

    def verify(self, *, threads: int | None = None, progress: Progress | None = None) -> tuple[str, ...]:
        """Read everything; names of all damaged tensors and pads in file order, empty when the file is whole.

        `progress` as in `upload`.
        """
        jobs = [(placed, index) for placed in self._layout.tensors for index in range(placed.blocks)]

        def check(job: tuple[Placed, int]) -> tuple[Placed, int, bool]:
            placed, index = job
            begin, end = placed.block(index)
            return placed, end - begin, self._read_checked(placed, index, memoryview(bytearray(end - begin)))

        damaged = {pad.name: pad.begin for pad in self._layout.pads if any(self._span(pad))}
        for placed, nbytes, whole in _parallel(check, jobs, threads):
            if not whole:
                damaged[placed.spec.name] = placed.begin
            if progress is not None:
                progress(nbytes)
        return tuple(sorted(damaged, key=damaged.__getitem__))

    def placed(self, name: str) -> Placed:
        """Place and block division of a tensor. Raises CoreError when the core has none of that name."""
        placed = self._layout.by_name.get(name)
        if placed is None:
            raise CoreError(f"the core has no tensor {name!r}", field=name)
        return placed

    def block_digests(self, name: str) -> builtins.bytes:
        """The recorded digests of a tensor, 32 bytes per block."""
        placed = self.placed(name)
        first = placed.first_block * DIGEST_BYTES
        return bytes(self._digests[first : first + placed.blocks * DIGEST_BYTES])

    def close(self) -> None:
        """Forget the mapping. Memory views handed out stay valid and keep it alive."""
        self._bytes = memoryview(b"")

    def _fitting(self, name: str, out: memoryview) -> Placed:
        placed = self.placed(name)
        if len(out) != placed.spec.nbytes:
            raise CoreError(
                f"tensor {name} has {placed.spec.nbytes} bytes, its destination {len(out)}", field=name
            )
        return placed

    def _read_checked(self, placed: Placed, index: int, buffer: memoryview) -> bool:
        self._pread(buffer, self._start + placed.begin + index * placed.block_bytes)
        return self._whole(placed, index, buffer)

    def _whole(self, placed: Placed, index: int, buffer: memoryview) -> bool:
        slot = (placed.first_block + index) * DIGEST_BYTES
        return sha256(buffer).digest() == self._digests[slot : slot + DIGEST_BYTES]

    def _span(self, span: Span) -> memoryview:
        buffer = memoryview(bytearray(span.end - span.begin))
        self._pread(buffer, self._start + span.begin)
        return buffer

    def _pread(self, buffer: memoryview, offset: int) -> None:
        while buffer:
            count = os.preadv(self._fd, [buffer], offset)
            if count == 0:
                raise CoreError(f"the file ends at byte {offset}: it was truncated while open", field="size")
            buffer, offset = buffer[count:], offset + count


def _flat(buffer: memoryview) -> memoryview:
    """The same memory as unsigned bytes (`cast` refuses arrays without elements)."""
    return buffer.cast("B") if buffer.nbytes else memoryview(bytearray())


def _parallel(work: Callable[[Job], Result], jobs: list[Job], threads: int | None) -> Iterator[Result]:
    """Results in the order of jobs; the first exception cancels what has not begun."""
    count = min(threads or default_threads(), len(jobs))
    if count <= 1:
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(count, thread_name_prefix="core-io") as pool:
        yield from pool.map(work, jobs)

"""Write a core: stream payload into a temporary file, seal it with its contract, rename it into place."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from flare.corefile import format as fmt
from flare.corefile import header
from flare.corefile.layout import plan
from flare.corefile.partial import Partial
from flare.corefile.store import Progress, TensorStore
from flare.corefile.tensor import TensorSpec
from flare.errors import CapacityError

DEFAULT_HEADER_BUDGET = 4 * 1024 * 1024

Payload: TypeAlias = bytes | bytearray | memoryview


class CoreWriter:
    """One core being written to `path`. Nothing exists at `path`, or what was there stays, until `seal`.

    `tensors` are every payload tensor, placed in this order. `header_budget_bytes` is reserved for the
    contract as JSON text in a JSON string (quotes take two bytes).

    Before sealing, written tensors can be read back: `bytes`, `load` and `upload` are those of a reader, so
    a device can run a core that is still being prepared. As a context manager, leaving without `seal`
    removes the temporary file.

    Raises CoreError for a bad or repeated tensor name, CapacityError when the disk is too small.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        tensors: Sequence[TensorSpec],
        header_budget_bytes: int = DEFAULT_HEADER_BUDGET,
    ) -> None:
        self.path = Path(path)
        self._layout = plan(tensors)
        empty = header.encode(self._layout, "", bytes(fmt.DIGEST_BYTES))
        self._room = fmt.round_up(fmt.LENGTH_BYTES + len(empty) + header_budget_bytes, fmt.PAGE)
        if self._room > fmt.MAX_HEADER_BYTES:
            raise CapacityError(
                f"a header of {self._room} bytes: readers accept {fmt.MAX_HEADER_BYTES}",
                field="header_budget_bytes",
            )
        self._missing = {name for name, placed in self._layout.by_name.items() if placed.blocks}
        self._begun: set[str] = set()
        self._lock = threading.Lock()
        self._partial = Partial(self.path, self._room + self._layout.nbytes)
        try:
            self._digests = bytearray(self._layout.blocks * fmt.DIGEST_BYTES)
            self._store = TensorStore(self._partial.fd, self._layout, self._room, self._digests)
        except BaseException:
            self._partial.close()
            raise
        self.tensors = self._store.tensors

    def write(self, name: str, payload: Payload | Iterable[Payload]) -> None:
        """Write one whole tensor, from one buffer or consecutive pieces of any size; once per tensor, in any
        order, from any thread. Pieces are C-contiguous."""
        placed = self._layout.by_name[name]
        with self._lock:
            assert name not in self._begun, f"tensor {name} is written twice"
            self._begun.add(name)
        pieces = [payload] if isinstance(payload, bytes | bytearray | memoryview) else payload
        start, cursor, block, digest = self._room + placed.begin, 0, 0, fmt.sha256()
        for piece in pieces:
            view = memoryview(piece)
            rest = view.cast("B") if view.nbytes else view[:0]
            assert cursor + len(rest) <= placed.spec.nbytes, f"too many bytes for tensor {name}"
            while rest:
                _, end = placed.block(block)
                part, rest = rest[: end - cursor], rest[end - cursor :]
                digest.update(part)
                self._partial.write(part, start + cursor)
                cursor += len(part)
                if cursor == end:
                    slot = (placed.first_block + block) * fmt.DIGEST_BYTES
                    self._digests[slot : slot + fmt.DIGEST_BYTES] = digest.digest()
                    block, digest = block + 1, fmt.sha256()
        assert cursor == placed.spec.nbytes, f"tensor {name} got {cursor} of {placed.spec.nbytes} bytes"
        with self._lock:
            self._missing.discard(name)

    def bytes(self, name: str) -> memoryview:
        """Mapped bytes of a written tensor: zero copy, read-only."""
        self._written(name)
        return self._store.bytes(name)

    def load(self, name: str, out: memoryview | None = None, *, verify: bool = True) -> memoryview:
        """Copy of a written tensor, as `TensorStore.load`."""
        self._written(name)
        return self._store.load(name, out, verify=verify)

    def blocks(self, name: str) -> Sequence[tuple[int, int]]:
        """As `TensorStore.blocks`."""
        return self._store.blocks(name)

    def read_blocks(self, name: str, first: int, count: int, out: memoryview) -> None:
        """Blocks of a written tensor, as `TensorStore.read_blocks`."""
        self._written(name)
        self._store.read_blocks(name, first, count, out)

    def upload(
        self,
        requests: Iterable[tuple[str, memoryview]],
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copy written tensors to their destinations, as `TensorStore.upload`."""
        wanted = list(requests)
        for name, _ in wanted:
            self._written(name)
        self._store.upload(wanted, threads=threads, progress=progress)

    def seal(self, contract_json: str) -> Path:
        """Complete the file with its contract, make it durable and rename it to `path`; returns `path`.

        Every tensor has been written. Raises CapacityError when the contract outgrew its room; the
        temporary file then still exists and `seal` can be called again.
        """
        assert not self._missing, f"tensors were never written: {sorted(self._missing)}"
        text = header.encode(self._layout, contract_json, fmt.sha256(self._digests).digest())
        if len(text) > self._room - fmt.LENGTH_BYTES:
            raise CapacityError(
                f"the header needs {len(text)} bytes and has room for {self._room - fmt.LENGTH_BYTES}",
                field="header_budget_bytes",
            )
        self._partial.write(self._digests, self._room + self._layout.checksums.begin)
        self._partial.write(header.seal(text, self._room), 0)
        self._partial.publish()
        return self.path

    def abort(self) -> None:
        """Close, and remove the temporary file unless it was sealed. Idempotent; views stay readable."""
        self._store.close()
        self._partial.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _written(self, name: str) -> None:
        self._store.placed(name)
        assert name not in self._missing, f"tensor {name} is read before it is written"

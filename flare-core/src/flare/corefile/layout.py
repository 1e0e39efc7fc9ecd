"""Where every tensor lies, and which checksum blocks cover it.

Strict safetensors readers refuse holes between tensors, so alignment is made of explicit `pad/NNNN`
tensors of zeros. Block digests of all tensors lie in file order in one `[blocks, 32]` tensor at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from flare.contract import DType
from flare.corefile.format import (
    ALIGNMENT,
    CHECKSUM_TENSOR,
    DIGEST_BYTES,
    PAGE,
    PAGE_ALIGNED_FROM,
    round_up,
)
from flare.corefile.tensor import Role, TensorSpec, check_name
from flare.errors import CoreError


@dataclass(frozen=True)
class Span:
    """Bytes [begin, end) of the data section that belong to the container itself."""

    name: str
    begin: int
    end: int


@dataclass(frozen=True)
class Placed:
    """A tensor at bytes [begin, end) of the data section. Its digests are blocks `first_block`,
    `first_block + 1`, ...; each block is `block_bytes` long, the last one may be shorter."""

    spec: TensorSpec
    begin: int
    end: int
    block_bytes: int
    first_block: int

    @property
    def blocks(self) -> int:
        """Number of checksum blocks."""
        return -(-(self.end - self.begin) // self.block_bytes)

    def block(self, index: int) -> tuple[int, int]:
        """Bytes [begin, end) of block `index` within the tensor."""
        begin = index * self.block_bytes
        return begin, min(begin + self.block_bytes, self.end - self.begin)


@dataclass(frozen=True)
class Layout:
    """All tensors of a file: payload in file order, pads, checksums."""

    tensors: tuple[Placed, ...]
    pads: tuple[Span, ...]
    checksums: Span

    @cached_property
    def by_name(self) -> Mapping[str, Placed]:
        """Payload tensors by name."""
        return {placed.spec.name: placed for placed in self.tensors}

    @property
    def blocks(self) -> int:
        """Number of checksum blocks of all tensors."""
        return sum(placed.blocks for placed in self.tensors)

    @property
    def nbytes(self) -> int:
        """Bytes of the data section; the checksums end it."""
        return self.checksums.end

    def entries(self) -> Iterator[tuple[str, DType, tuple[int, ...], int, int]]:
        """(name, dtype, shape, begin, end) of every safetensors entry, in no particular order."""
        for placed in self.tensors:
            yield placed.spec.name, placed.spec.dtype, placed.spec.shape, placed.begin, placed.end
        for pad in self.pads:
            yield pad.name, DType.U8, (pad.end - pad.begin,), pad.begin, pad.end
        span = self.checksums
        yield span.name, DType.U8, (self.blocks, DIGEST_BYTES), span.begin, span.end


def alignment(nbytes: int) -> int:
    """The boundary on which a tensor of `nbytes` bytes begins."""
    if nbytes == 0:
        return 1
    return PAGE if nbytes >= PAGE_ALIGNED_FROM else ALIGNMENT


def plan(specs: Sequence[TensorSpec]) -> Layout:
    """Place tensors one after another in the order given. Raises CoreError for a bad or repeated name."""
    tensors: list[Placed] = []
    pads: list[Span] = []
    names: set[str] = set()
    cursor = blocks = 0

    def align(boundary: int) -> int:
        begin = round_up(cursor, boundary)
        if begin > cursor:
            pads.append(Span(f"pad/{len(pads):04}", cursor, begin))
        return begin

    for spec in specs:
        check_name(spec.name)
        if spec.name in names:
            raise CoreError(f"two tensors are named {spec.name!r}", field=spec.name)
        names.add(spec.name)
        begin = align(alignment(spec.nbytes))
        placed = Placed(spec, begin, begin + spec.nbytes, Role(spec.role).block_bytes, blocks)
        tensors.append(placed)
        cursor = placed.end
        blocks += placed.blocks
    digests = blocks * DIGEST_BYTES
    begin = align(alignment(digests))
    return Layout(tuple(tensors), tuple(pads), Span(CHECKSUM_TENSOR, begin, begin + digests))

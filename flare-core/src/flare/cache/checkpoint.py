"""A checkpoint: everything needed to continue after one exact prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from flare.cache.identity import PrefixKey
from flare.cache.standing import Turn


@dataclass(frozen=True, slots=True)
class SnapshotStorage:
    """Where a snapshot is kept: a row, and a page for the partial tail unless the endpoint is aligned."""

    row: int
    tail_page: int | None


@dataclass(eq=False, slots=True)
class Checkpoint:
    """State after `tokens` consumed tokens, published and immutable.

    Complete pages form a chain: those of `parent`, then `pages`. `storage` holds the rest. `pins` counts
    requests that continue from here; `holds` adds the children below which somebody does. `fence` is the
    last submitted frame that may read this storage, or that of a removed descendant. `side`: so far only side
    requests used it; `turn` is the one that published it or went on from it last (`flare.cache.standing`).
    """

    key: PrefixKey
    tokens: int
    parent: Checkpoint | None
    pages: tuple[int, ...]
    storage: SnapshotStorage
    serial: int
    children: set[Checkpoint] = field(default_factory=set)
    pins: int = 0
    holds: int = 0
    fence: int = 0
    accessed: int = 0
    version: int = 0  # of its entry in the eviction order
    removed: bool = False
    side: bool = False
    turn: Turn | None = None

    def lineage(self) -> Iterator[Checkpoint]:
        """This checkpoint and its ancestors, nearest first."""
        node: Checkpoint | None = self
        while node is not None:
            yield node
            node = node.parent

    def chain(self) -> tuple[int, ...]:
        """Every complete page of the prefix, in token order."""
        pages: list[int] = []
        for node in self.lineage():
            pages[:0] = node.pages
        return tuple(pages)

    @property
    def held_pages(self) -> int:
        """Pages that would come back if this and nothing else of the chain were removed."""
        return len(self.pages) + (self.storage.tail_page is not None)

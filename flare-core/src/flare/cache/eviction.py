"""Which checkpoint goes next.

Short of snapshot rows, chains are thinned: the checkpoint between its parent and its only child that bounds
the shortest interval goes first, so history stays sparsely covered and conversation ends stay. Chain roots
come after interior checkpoints. With nothing to thin, the least recently used leaf goes. Short of pages, the
least recently used leaf or removable ancestor goes.

In either order checkpoints of side requests (`flare.cache.standing`) come first, and those that the request
in need spares are passed over.

Heaps with lazy deletion keep every choice logarithmic: an entry counts while its checkpoint has the entry's
version.
"""

from __future__ import annotations

import heapq

from flare.cache.checkpoint import Checkpoint
from flare.cache.standing import ORDINARY, Standing

_Entry = tuple[tuple[int, ...], int, Checkpoint]  # order, version, checkpoint; orders are unique


class EvictionOrder:
    """Every removable checkpoint, in both orders. `update` must follow each change of one's pins, children,
    parent, access or side."""

    def __init__(self) -> None:
        self._by_age: list[_Entry] = []
        self._by_interval: list[_Entry] = []
        self._limit = 256

    def update(self, checkpoint: Checkpoint) -> None:
        """Take the checkpoint's present state into account."""
        checkpoint.version += 1
        if checkpoint.removed or checkpoint.pins or len(checkpoint.children) > 1:
            return
        rank = int(not checkpoint.side)
        age = (checkpoint.accessed, checkpoint.serial)
        heapq.heappush(self._by_age, ((rank, *age), checkpoint.version, checkpoint))
        if checkpoint.children:
            (child,) = checkpoint.children
            parent = checkpoint.parent
            interval = child.tokens - (0 if parent is None else parent.tokens)
            order = (rank, int(parent is None), interval, *age)
            heapq.heappush(self._by_interval, (order, checkpoint.version, checkpoint))
        self._compact()

    def oldest(self, standing: Standing = ORDINARY) -> Checkpoint | None:
        """The least recently used leaf or removable ancestor that `standing` does not spare, or None."""
        return _first(self._by_age, standing)

    def thinnest(self, standing: Standing = ORDINARY) -> Checkpoint | None:
        """The removable ancestor whose removal loses the least coverage, of those that `standing` does not
        spare, or None."""
        return _first(self._by_interval, standing)

    def _compact(self) -> None:
        # Once stale entries are the majority, dropping them all is paid for by the pushes since last time.
        for heap in (self._by_age, self._by_interval):
            if len(heap) > self._limit:
                heap[:] = [entry for entry in heap if entry[1] == entry[2].version]
                heapq.heapify(heap)
                self._limit = max(self._limit, 2 * len(heap))


def _first(heap: list[_Entry], standing: Standing) -> Checkpoint | None:
    spared: list[_Entry] = []  # a few turns' checkpoints at most
    while heap and (heap[0][1] != heap[0][2].version or standing.spares(heap[0][2])):
        entry = heapq.heappop(heap)
        if entry[1] == entry[2].version:
            spared.append(entry)
    found = heap[0][2] if heap else None
    for entry in spared:
        heapq.heappush(heap, entry)
    return found

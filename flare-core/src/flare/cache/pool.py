"""A pool of numbered blocks that are reused only after their holders and the device have let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


class FencedPool:
    """Blocks `first .. first + count - 1`, each with a reference count and a last-use fence.

    Two things keep a block busy, and they end independently: logical references (requests, later
    checkpoints) and submitted frames that can still read or write it. A holder names the last frame that
    can touch the block through it when it releases its reference. The block returns to the free list when
    no reference is left and every such frame has ended. Frames are numbered from 1 in submission order;
    frame 0 is "never submitted".

    `on_free`, when set, is called with the blocks that just became free (tests poison them).
    """

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count
        # Popped from the end: low numbers first, and the most recently freed block again (warm in caches).
        self._free = list(range(first + count - 1, first - 1, -1))
        self._references = [0] * count
        self._fences = [0] * count
        self._fenced: set[int] = set()
        self._retired = 0
        self.on_free: Callable[[Sequence[int]], None] | None = None

    @property
    def total(self) -> int:
        """Blocks of the pool, whatever their state."""
        return self._count

    @property
    def free(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    @property
    def fenced(self) -> int:
        """Blocks nobody holds that wait for a submitted frame."""
        return len(self._fenced)

    def references(self, block: int) -> int:
        """Logical references to `block`."""
        return self._references[block - self._first]

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """`count` free blocks with one reference each, or None (and no change) when fewer are free."""
        assert count >= 0
        if count > len(self._free):
            return None
        blocks = tuple(self._free.pop() for _ in range(count))
        for block in blocks:
            self._references[block - self._first] = 1
            self._fences[block - self._first] = 0
        return blocks

    def retain(self, blocks: Iterable[int]) -> None:
        """Add one reference to each held block."""
        for block in blocks:
            assert self._references[block - self._first] > 0, f"block {block} is not held"
            self._references[block - self._first] += 1

    def release(self, blocks: Iterable[int], last_frame: int) -> None:
        """Drop one reference to each block, which submitted frames up to `last_frame` may touch."""
        freed: list[int] = []
        for block in blocks:
            index = block - self._first
            assert self._references[index] > 0, f"block {block} is released more often than held"
            self._references[index] -= 1
            self._fences[index] = max(self._fences[index], last_frame)
            if self._references[index] == 0:
                if self._fences[index] <= self._retired:
                    freed.append(block)
                else:
                    self._fenced.add(block)
        self._give_back(freed)

    def retire(self, frame: int) -> None:
        """Every frame up to `frame` has ended on the device."""
        assert frame >= self._retired, f"frame {frame} ended after frame {self._retired}"
        self._retired = frame
        if self._fenced:
            freed = sorted(block for block in self._fenced if self._fences[block - self._first] <= frame)
            self._fenced.difference_update(freed)
            self._give_back(freed)

    def _give_back(self, blocks: list[int]) -> None:
        if blocks:
            if self.on_free is not None:
                self.on_free(blocks)
            self._free.extend(blocks)

"""Which published checkpoints are copied to the tiers, and when.

Every published checkpoint is a candidate from its publication on. One is copied at a time, the newest first,
beside whatever runs: it is immutable, so nothing has to pause for it. Eviction then costs nothing and a
crash loses little. When publication is faster than copying, older candidates wait; those that are thinned or
evicted meanwhile are not copied at all. That favours the ends of conversations, and nobody ever waits for a
victim to be saved.

While its storage is read a checkpoint is pinned, which does not count as an access.

What side requests publish (`flare.cache.standing`) is not copied: hardly anybody comes back to it.
"""

from __future__ import annotations

from flare.cache import Checkpoint, CheckpointTree, PrefixIdentity
from flare.scheduler.tiers import Saving, Tiers


class WriteBack:
    """Candidates of one scheduler; none without tiers."""

    def __init__(self, tree: CheckpointTree, tiers: Tiers | None) -> None:
        self._tree = tree
        self._tiers = tiers
        self._candidates: dict[Checkpoint, PrefixIdentity] = {}
        self._saving: Saving | None = None

    @property
    def active(self) -> int:
        """Copies on their way."""
        return int(self._saving is not None)

    @property
    def waiting(self) -> int:
        """Candidates that wait for their turn, at most."""
        return len(self._candidates)

    def published(self, checkpoint: Checkpoint, identity: PrefixIdentity) -> None:
        """A checkpoint of a prefix of `identity` exists from now on."""
        if self._tiers is None or checkpoint.side:
            return
        self._candidates[checkpoint] = identity
        if len(self._candidates) > 2 * self._tree.rows.total:
            self._candidates = {c: i for c, i in self._candidates.items() if not c.removed}
        self._next()

    def complete(self, saving: Saving) -> None:
        """The storage of `saving` has been read, or reading it was given up."""
        assert saving is self._saving
        self._saving = None
        self._tree.unpin(saving.checkpoint, 0)
        self._next()

    def _next(self) -> None:
        assert self._tiers is not None
        while self._saving is None and self._candidates:
            checkpoint, identity = self._candidates.popitem()
            if not checkpoint.removed:
                accessed = checkpoint.accessed
                self._tree.pin(checkpoint)
                checkpoint.accessed = accessed
                self._saving = Saving(identity, checkpoint, checkpoint.chain())
                self._tiers.save(self._saving)

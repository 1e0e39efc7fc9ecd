"""The checkpoint tree: what is published, who continues from it, and what is given up under pressure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flare.cache.checkpoint import Checkpoint, SnapshotStorage
from flare.cache.endpoints import Endpoints
from flare.cache.eviction import EvictionOrder
from flare.cache.identity import PrefixIdentity
from flare.cache.pages import PagePool
from flare.cache.rows import RowPool
from flare.cache.standing import ORDINARY, Standing


@dataclass(slots=True)
class CacheCounts:
    """What happened since start. `evicted_*`: endpoints lost under pressure for pages and for snapshot rows;
    `thinned_*`: interior checkpoints given up while their descendants stay."""

    published: int = 0
    duplicates: int = 0
    evicted_for_pages: int = 0
    evicted_for_rows: int = 0
    thinned_for_pages: int = 0
    thinned_for_rows: int = 0

    @property
    def thinned(self) -> int:
        """Interior checkpoints given up."""
        return self.thinned_for_pages + self.thinned_for_rows


@dataclass(slots=True)
class CheckpointTree:
    """Published checkpoints over the page and row pools of one core.

    Complete pages and snapshot storage of a checkpoint belong to the tree: one pool reference each. Removing
    an ancestor hands its pages and its fence to its only child, so descendants stay whole; removing a leaf
    gives its pages back behind its fence.
    """

    pages: PagePool
    rows: RowPool
    counts: CacheCounts = field(default_factory=CacheCounts)
    _index: Endpoints[Checkpoint] = field(default_factory=Endpoints)
    _order: EvictionOrder = field(default_factory=EvictionOrder)
    _clock: int = 0
    _serial: int = 0
    _size: int = 0
    _held_pages: int = 0  # by every checkpoint
    _kept: int = 0  # checkpoints that somebody continues from, and their ancestors
    _kept_pages: int = 0  # complete pages of those

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self._index)

    @property
    def held_pages(self) -> int:
        """Pages that checkpoints hold."""
        return self._held_pages

    @property
    def removable(self) -> int:
        """Checkpoints nobody continues from, directly or further on."""
        return self._size - self._kept

    @property
    def removable_pages(self) -> int:
        """Pages that eviction could give back, at most."""
        return self._held_pages - self._kept_pages

    def find(self, identity: PrefixIdentity, limit: int) -> Checkpoint | None:
        """The longest checkpoint that is a prefix of `identity`'s first `limit` tokens."""
        return self._index.longest(identity, limit)

    def pin(self, checkpoint: Checkpoint) -> None:
        """Somebody continues from `checkpoint`: it and its chain stay. Counts as an access."""
        assert not checkpoint.removed
        self._clock += 1
        checkpoint.accessed = self._clock
        checkpoint.pins += 1
        self._hold(checkpoint)
        self._order.update(checkpoint)

    def unpin(self, checkpoint: Checkpoint, last_frame: int) -> None:
        """The holder of one pin is done; submitted frames up to `last_frame` may read the chain for it."""
        assert checkpoint.pins > 0
        checkpoint.pins -= 1
        checkpoint.fence = max(checkpoint.fence, last_frame)
        self._let_go(checkpoint)
        self._order.update(checkpoint)

    def reserve(self, aligned: bool, standing: Standing = ORDINARY) -> SnapshotStorage | None:
        """Storage for one snapshot, taken from the least valuable unpinned checkpoints if need be.

        None when too much is pinned, when what was given up still waits for the device, or when `standing`
        spares the rest: the caller goes on without a checkpoint.
        """
        while not self.rows.free and not self.rows.fenced and self._give_up_a_row(standing):
            pass
        if not self.rows.free or not (aligned or self._make_room(1, standing)):
            return None
        row = self.rows.allocate(1)
        tail = () if aligned else self.pages.allocate(1)
        assert row is not None
        assert tail is not None
        return SnapshotStorage(row=row[0], tail_page=None if aligned else tail[0])

    def release(self, storage: SnapshotStorage, last_frame: int) -> None:
        """Give storage back that no checkpoint took over."""
        self.rows.release((storage.row,), last_frame)
        if storage.tail_page is not None:
            self.pages.release((storage.tail_page,), last_frame)

    def make_room(self, pages: int, standing: Standing = ORDINARY) -> bool:
        """Give up checkpoints until `pages` pages are free; whether they are. Nothing is given up when that
        could not be enough, or when fenced pages will do as soon as the device lets go. What `standing`
        spares goes last."""
        return self._make_room(pages, standing) or (standing.side and self._make_room(pages, ORDINARY))

    def _make_room(self, pages: int, standing: Standing) -> bool:
        while self.pages.free < pages:
            if self.pages.free + self.pages.fenced >= pages:
                return False
            if self.pages.free + self.pages.fenced + self.removable_pages < pages:
                return False
            victim = self._order.oldest(standing)
            if victim is None:
                return False
            if victim.children:
                self.counts.thinned_for_pages += 1
            else:
                self.counts.evicted_for_pages += 1
            self.remove(victim)
        return True

    def lookup(self, identity: PrefixIdentity, tokens: int) -> Checkpoint | None:
        """The checkpoint of exactly the first `tokens` tokens."""
        return self._index.get(identity.key(tokens))

    def publish(
        self,
        identity: PrefixIdentity,
        tokens: int,
        parent: Checkpoint | None,
        pages: Sequence[int],
        storage: SnapshotStorage,
        last_frame: int,
        standing: Standing = ORDINARY,
    ) -> Checkpoint | None:
        """Publish the state after `tokens` tokens, whose snapshot is in `storage` by frame `last_frame`.

        `pages` are the complete pages behind those of `parent`; their references pass to the tree. When an
        equal endpoint is published already, only `storage` is given back, the pages stay with the caller and
        None is returned.
        """
        if (equal := self.lookup(identity, tokens)) is not None:
            self.counts.duplicates += 1
            self.release(storage, last_frame)
            self.touch(equal)
            self.claim(equal, standing)
            return None
        assert len(pages) == tokens // self.pages.page_tokens - _complete(parent, self.pages.page_tokens)
        self._serial += 1
        checkpoint = Checkpoint(
            key=identity.key(tokens),
            tokens=tokens,
            parent=parent,
            pages=tuple(pages),
            storage=storage,
            serial=self._serial,
            fence=last_frame,
            side=standing.side,
            turn=standing.turn,
        )
        self._index.add(checkpoint.key, checkpoint)
        self._held_pages += checkpoint.held_pages
        self._size += 1
        if parent is not None:
            assert not parent.removed
            parent.children.add(checkpoint)
            self._order.update(parent)
            self._claim_chain(parent, standing)
        self.touch(checkpoint)
        self.counts.published += 1
        return checkpoint

    def remove(self, checkpoint: Checkpoint) -> None:
        """Remove an unpinned checkpoint with at most one child; descendants stay whole."""
        assert checkpoint.pins == 0
        assert len(checkpoint.children) <= 1
        if checkpoint.children:
            (child,) = checkpoint.children
            self._inherit(child, checkpoint)
        else:
            self.pages.release(checkpoint.pages, checkpoint.fence)
        self._retire(checkpoint)

    def absorb(self, checkpoint: Checkpoint, last_frame: int) -> Checkpoint | None:
        """Remove a leaf for its only holder, who takes over its complete pages and a pin of its parent, which
        is returned. Submitted frames up to `last_frame` may read what is given up."""
        assert checkpoint.pins == 1
        assert not checkpoint.children
        parent = checkpoint.parent
        if parent is not None:
            self.pin(parent)
        self.unpin(checkpoint, last_frame)
        self._retire(checkpoint)
        return parent

    def _retire(self, checkpoint: Checkpoint) -> None:
        """Take a childless checkpoint out; its complete pages have found another owner."""
        assert not checkpoint.removed
        parent = checkpoint.parent
        self._held_pages -= checkpoint.held_pages
        if checkpoint.holds:
            self._kept -= 1
            self._kept_pages -= len(checkpoint.pages)
        self.release(checkpoint.storage, checkpoint.fence)
        checkpoint.removed = True
        self._index.remove(checkpoint.key)
        self._size -= 1
        self._order.update(checkpoint)
        if parent is not None:
            parent.children.discard(checkpoint)
            parent.fence = max(parent.fence, checkpoint.fence)
            self._order.update(parent)

    def clear(self) -> int:
        """Remove everything that nobody continues from; returns how many checkpoints went."""
        before = len(self)
        while (victim := self._order.oldest()) is not None:
            self.remove(victim)
        return before - len(self)

    def _inherit(self, child: Checkpoint, removed: Checkpoint) -> None:
        child.parent = removed.parent
        child.pages = removed.pages + child.pages
        child.fence = max(child.fence, removed.fence)
        self._held_pages += len(removed.pages)
        if child.holds:
            self._kept_pages += len(removed.pages)
        if removed.parent is not None:
            removed.parent.children.add(child)
        removed.children.clear()
        self._order.update(child)

    def _give_up_a_row(self, standing: Standing) -> bool:
        victim = self._order.thinnest(standing)
        if victim is None or not victim.side:
            oldest = self._order.oldest(standing)
            if oldest is not None and (victim is None or oldest.side):
                victim = oldest
        if victim is None:
            return False
        if victim.children:
            self.counts.thinned_for_rows += 1
        else:
            self.counts.evicted_for_rows += 1
        self.remove(victim)
        return True

    def claim(self, checkpoint: Checkpoint, standing: Standing) -> None:
        """A request of `standing` continues from `checkpoint`, or would have published it: unless the request
        is a side one itself, neither the checkpoint nor its chain are any more."""
        if standing.turn is not None:
            checkpoint.turn = standing.turn
        self._claim_chain(checkpoint, standing)

    def _claim_chain(self, checkpoint: Checkpoint, standing: Standing) -> None:
        if standing.side:
            return
        for node in checkpoint.lineage():
            if not node.side:
                break  # and so is what it goes on from
            node.side = False
            self._order.update(node)

    def touch(self, checkpoint: Checkpoint) -> None:
        """Count an access."""
        self._clock += 1
        checkpoint.accessed = self._clock
        self._order.update(checkpoint)

    def _hold(self, checkpoint: Checkpoint) -> None:
        for node in checkpoint.lineage():
            node.holds += 1
            if node.holds > 1:
                break
            self._kept += 1
            self._kept_pages += len(node.pages)

    def _let_go(self, checkpoint: Checkpoint) -> None:
        for node in checkpoint.lineage():
            node.holds -= 1
            if node.holds:
                break
            self._kept -= 1
            self._kept_pages -= len(node.pages)


def _complete(parent: Checkpoint | None, page_tokens: int) -> int:
    return 0 if parent is None else parent.tokens // page_tokens

"""Pages, rows and slots, and the checkpoints that share them: who holds a block, and until when the device
may still touch it; which prefixes can be continued from."""

from flare.cache.checkpoint import Checkpoint, SnapshotStorage
from flare.cache.conversations import Conversations
from flare.cache.identity import Conditioning, PrefixIdentity
from flare.cache.pages import NULL_PAGE, PagePool
from flare.cache.pool import FencedPool
from flare.cache.rows import NULL_ROW, RowPool
from flare.cache.slots import Slot, SlotPool
from flare.cache.standing import ORDINARY, Standing
from flare.cache.tree import CacheCounts, CheckpointTree

__all__ = [
    "NULL_PAGE",
    "NULL_ROW",
    "ORDINARY",
    "CacheCounts",
    "Checkpoint",
    "CheckpointTree",
    "Conditioning",
    "Conversations",
    "FencedPool",
    "PagePool",
    "PrefixIdentity",
    "RowPool",
    "Slot",
    "SlotPool",
    "SnapshotStorage",
    "Standing",
]

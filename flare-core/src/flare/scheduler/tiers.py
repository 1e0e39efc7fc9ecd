"""What the scheduler asks of the tiers behind the device: look up a prefix, bring it back, keep a copy.

Transfers run elsewhere, and only their beginning and end are the scheduler's business. `Tiers.lookup` answers
at once; `restore` and `save` begin a transfer whose end comes back through `Scheduler.restored` and
`Scheduler.saved`, never from within the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flare.cache import ORDINARY, Checkpoint, PrefixIdentity, SnapshotStorage, Standing
from flare.scheduler.request import Request


class Stored(Protocol):
    """A checkpoint that a tier has."""

    @property
    def tokens(self) -> int: ...


@dataclass(eq=False, slots=True)
class Ticket:
    """A restoration: the device storage that it fills, and who waits for it.

    The checkpoint of the first `stored.tokens` tokens of `identity` comes into `pages`, its complete pages
    behind those of `parent` (pinned), and into `storage`. Until the end all of it belongs to the transfer,
    whoever still waits. `standing` is that of the request it began for.
    """

    identity: PrefixIdentity
    stored: Stored
    parent: Checkpoint | None
    pages: Sequence[int]
    storage: SnapshotStorage
    waiters: set[Request] = field(default_factory=set)
    standing: Standing = ORDINARY


@dataclass(eq=False, slots=True)
class Saving:
    """A copy on its way to the tiers: `checkpoint`, pinned until the device storage has been read. `pages`
    are all complete pages of the prefix."""

    identity: PrefixIdentity
    checkpoint: Checkpoint
    pages: Sequence[int]


class Tiers(Protocol):
    """Everything behind the device, as one."""

    def lookup(self, identity: PrefixIdentity, limit: int, above: int) -> Stored | None:
        """The longest stored prefix of `identity`'s first `limit` tokens, if it has more than `above`."""

    def restore(self, ticket: Ticket) -> None:
        """Begin to fill the ticket's storage."""

    def save(self, saving: Saving) -> None:
        """Begin to copy a checkpoint."""

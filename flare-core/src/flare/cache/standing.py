"""How a request stands to the other requests of its session, as far as eviction asks.

A client sends small requests beside its conversation: for a title, for the topic of a message. What they
leave behind is hardly ever continued from, and must not take the place of the conversation. A standing is an
order of what goes first. It never keeps a checkpoint when there is nothing else to give up for a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flare.cache.checkpoint import Checkpoint


@dataclass(eq=False, slots=True)
class Turn:
    """A turn of a conversation of `session`; `last`, until another one follows."""

    session: object
    last: bool = True


@dataclass(frozen=True, slots=True)
class Standing:
    """`side`: the request runs beside a much larger conversation of its `session`; its checkpoints go before
    all others, and for its sake those of the last turns of the session's conversations go after all others.
    `turn` is the request's own when it is a turn of a conversation."""

    side: bool = False
    session: object = None
    turn: Turn | None = None

    def spares(self, checkpoint: Checkpoint) -> bool:
        """Whether `checkpoint` should be the last to go for the sake of this request."""
        turn = checkpoint.turn
        return self.side and turn is not None and turn.last and turn.session is self.session


ORDINARY = Standing()
"""Of a request without a session: the order is by use alone."""

"""Which requests of a session are turns of a conversation, and which run beside one.

The first request of a session begins a conversation. Another one that goes on from the end of its last
message continues it. One that continues nothing and is much smaller than the largest conversation is a side
request, until one goes on from it: then it was the first turn of another conversation (a sub-agent's, or the
same one after its client summarised it). Everything else begins a conversation.

What is remembered is bounded: forgetting makes requests ordinary ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from flare.cache.identity import PrefixIdentity, PrefixKey
from flare.cache.standing import ORDINARY, Standing, Turn

MUCH_SMALLER = 4
"""A side request has at most this part of the tokens of the largest conversation."""
_SESSIONS = 256
_CONVERSATIONS = 16  # of one session: agents run others beside themselves
_ASIDES = 4


@dataclass(eq=False, slots=True)
class _Thread:
    """The last request of a thread: `length` tokens of prompt, whose last message ends at `end`, as `key`
    says. `turn` is None beside a conversation."""

    length: int
    end: int
    key: PrefixKey
    turn: Turn | None = None


@dataclass(eq=False, slots=True)
class _Session:
    conversations: list[_Thread] = field(default_factory=list)  # the one used last at the end
    asides: list[_Thread] = field(default_factory=list)

    def standing(self, identity: PrefixIdentity, end: int) -> Standing:
        """Of a request that arrives now."""
        length = len(identity)
        thread = _Thread(length, end, identity.key(end))
        before = self._before(identity)
        if before is None or (before.turn is None and end == before.end):
            largest = max((one.length for one in self.conversations), default=0)
            if length * MUCH_SMALLER <= largest:
                if before is None:
                    self.asides = [*self.asides, thread][-_ASIDES:]
                return Standing(side=True, session=self)
        thread.turn = self._turn(before, end)
        known = [one for one in self.conversations if one is not before]
        for forgotten in known[: 1 - _CONVERSATIONS]:
            assert forgotten.turn is not None
            forgotten.turn.last = False
        self.conversations = [*known[1 - _CONVERSATIONS :], thread]
        self.asides = [one for one in self.asides if one is not before]
        return Standing(session=self, turn=thread.turn)

    def _before(self, identity: PrefixIdentity) -> _Thread | None:
        """The thread that a request goes on from, or repeats; the longest."""
        length = len(identity)
        return max(
            (
                one
                for one in (*self.conversations, *self.asides)
                if one.end <= length and identity.key(one.end) == one.key
            ),
            key=lambda one: one.end,
            default=None,
        )

    def _turn(self, before: _Thread | None, end: int) -> Turn:
        if before is None or before.turn is None:
            return Turn(self)
        if end > before.end:  # a repetition is the same turn
            before.turn.last = False
            return Turn(self)
        return before.turn


class Conversations:
    """The conversations of recent sessions."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def standing(self, session: str, salt: str, identity: PrefixIdentity, end: int) -> Standing:
        """Of a request that arrives now, whose prompt is all of `identity` and whose last message ends behind
        `end` tokens. Sessions are told apart by `salt` as well; an empty name is none."""
        if not session:
            return ORDINARY
        known = self._sessions.setdefault((salt, session), _Session())
        self._sessions.move_to_end((salt, session))
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return known.standing(identity, end)

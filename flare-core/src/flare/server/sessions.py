"""Conversations of clients that name them: which message kept a turn from going on where the last one ended.

A client that changes an early part of its prompt with every request pays for all of it every time, and cannot
see why. Agents name their conversation in a header or field; a line in the log names the part at fault.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from flare.server.turn import Turn

logger = logging.getLogger("flare.server")

_HEADERS = ("x-claude-code-session-id", "x-session-id")
_SESSIONS = 256
_THREADS = 4  # of one session: agents ask for titles and summaries beside the conversation
_encoder = msgspec.json.Encoder()


def part_digests(turn: Turn) -> tuple[bytes, ...]:
    """Of the tools, then of every message: equal where turns have the same beginning."""
    return tuple(
        hashlib.blake2b(_encoder.encode(part), digest_size=8).digest()
        for part in (turn.tools.definitions, *turn.messages)
    )


def session_of(headers: Mapping[str, str], turn: Turn) -> str | None:
    """The name that the client has for its conversation."""
    for name in _HEADERS:
        if value := headers.get(name):
            return value[:256]
    return turn.session


class Sessions:
    """The last turns of recent sessions."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, list[Sequence[bytes]]] = OrderedDict()

    def note(self, session: str, parts: Sequence[bytes], request_id: str) -> str | None:
        """A turn of `session` begins. Returns, and logs, the name of the part that differs from the turn that
        it shares most with; None for one that goes on, and for the first of a thread."""
        threads = self._threads.pop(session, [])
        self._threads[session] = threads
        while len(self._threads) > _SESSIONS:
            self._threads.popitem(last=False)
        shared = [_shared(parts, known) for known in threads]
        best = max(range(len(threads)), key=shared.__getitem__, default=None)
        # Tools and the first message are common to all threads of a client.
        if best is None or shared[best] < min(2, len(threads[best])):
            threads.append(parts)
            del threads[:-_THREADS]
            return None
        known, common = threads.pop(best), shared[best]
        threads.append(parts)
        if common == len(known) or common == len(parts):
            return None
        changed = "tools" if common == 0 else f"messages[{common - 1}]"
        logger.info(
            "request %s: %s differs from the last turn of its session: of %d messages %d go on from it",
            request_id,
            changed,
            len(parts) - 1,
            max(common - 1, 0),
        )
        return changed


def _shared(first: Sequence[bytes], second: Sequence[bytes]) -> int:
    length = min(len(first), len(second))
    return next((index for index in range(length) if first[index] != second[index]), length)

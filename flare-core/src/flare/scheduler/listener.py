"""Who is told what happened to requests."""

from __future__ import annotations

from typing import Literal, Protocol

from flare.scheduler.records import LaneRecord
from flare.scheduler.request import Request


class Listener(Protocol):
    """Receives every change of a request once, in order. Must not call back into the scheduler."""

    def admitted(self, request: Request) -> None:
        """The request holds its slot and pages."""

    def preempted(self, request: Request) -> None:
        """The request waits again, with its `generated` tokens kept; its draws continue under another key."""

    def drew(self, request: Request, record: LaneRecord) -> None:
        """`record.tokens` (not empty) are new output of the request."""

    def finished(self, request: Request, reason: Literal["stop", "length", "cancelled"]) -> None:
        """The request ended as it should. With "stop", `request.last_token` is the stop token."""

    def failed(self, request: Request, message: str) -> None:
        """The device could not go on with this request; others are not affected."""

"""The bounded waiting queue and its fairness rule."""

from __future__ import annotations

from collections.abc import Callable

from flare.scheduler.request import Request


class WaitingQueue:
    """First come, first served, except that a request may pass earlier ones that do not fit now.

    Passing is bounded: after `max_passes` requests overtook a waiting one, nothing behind it is admitted
    until it is. Running requests all end (their output is bounded), what they free is then kept for the
    blocked request, and no request needs more than the whole pool: so every request is admitted eventually.
    """

    def __init__(self, limit: int, max_passes: int) -> None:
        self._limit = limit
        self._max_passes = max_passes
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def full(self) -> bool:
        """Whether one more request has to be refused."""
        return len(self._requests) >= self._limit

    def append(self, request: Request) -> None:
        """Queue `request` last."""
        self._requests.append(request)

    def prepend(self, request: Request) -> None:
        """Queue `request` first; a preempted one does not count against the limit."""
        self._requests.insert(0, request)

    def remove(self, request: Request) -> None:
        """Withdraw a waiting request."""
        self._requests.remove(request)

    def clear(self) -> list[Request]:
        """Withdraw everything; returns what waited."""
        requests, self._requests = self._requests, []
        return requests

    def admit(self, reserve: Callable[[Request], bool]) -> list[Request]:
        """Take out, in order, every request that may go now and for which `reserve` succeeds."""
        admitted: list[Request] = []
        blocked: list[Request] = []
        rest = iter(self._requests)
        for request in rest:
            if reserve(request):
                admitted.append(request)
                for earlier in blocked:
                    earlier.passed += 1
            else:
                blocked.append(request)
            if any(earlier.passed >= self._max_passes for earlier in blocked):
                break
        self._requests = blocked + list(rest)
        return admitted

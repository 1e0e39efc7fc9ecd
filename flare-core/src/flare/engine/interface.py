"""What the HTTP server needs from an engine, whoever implements it (the real process, or a scripted one)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from flare.engine.messages import CacheReport, Finished, Ready, Stats, Submit, TimelineReport, Tokens


class Generation(Protocol):
    """One admitted request. Iterating yields `Tokens` events and ends after one `Finished`.

    A slow reader costs bounded memory: events that were not read yet are merged into one `Tokens`.
    Iteration raises `ExecutionError` when the engine fails or dies.
    """

    def __aiter__(self) -> AsyncIterator[Tokens | Finished]: ...

    def cancel(self) -> None:
        """Ask the engine to stop; idempotent, does not wait. Iteration then ends with
        `Finished("cancelled")`, or with the end that was already on its way."""


class EngineClient(Protocol):
    """The front process's view of one engine."""

    @property
    def ready(self) -> Ready | None:
        """Set once the engine loaded its core; None before."""

    @property
    def alive(self) -> bool:
        """False from the moment the engine process died or failed."""

    @property
    def restarts(self) -> int:
        """Engine processes that were started after the first."""

    async def submit(self, request: Submit) -> Generation:
        """Return once the request is admitted. Cancelling the awaiting task withdraws the request.

        Raises: RequestError (never fits: context or capacity), UnavailableError (queue full, shutting down,
        engine not ready), ExecutionError (engine died).
        """

    async def stats(self) -> Stats:
        """One current snapshot. Raises UnavailableError or ExecutionError as `submit` does."""

    async def cache_report(self, most: int = 1000) -> CacheReport:
        """The checkpoints used last, `most` of them. Raises as `stats` does."""

    async def timeline(self, since: int = 0) -> TimelineReport:
        """The steps that the engine remembers, with numbers above `since`. Raises as `stats` does."""

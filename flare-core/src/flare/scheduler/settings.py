"""What an operator of the server may choose about scheduling."""

from __future__ import annotations

from dataclasses import dataclass

from flare.errors import CapacityError

SLOWDOWN = 2.75
"""Below 3, because measured costs vary."""
LEAST_PAUSE_MS = 25.0
"""Forty tokens a second are more than anybody reads. Where a decode step takes two milliseconds, chunks that
fit into few steps read all weights for a dozen tokens, and a long prompt waits ten times as long."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Scheduling settings.

    `max_waiting`: requests that may wait for admission; one more is refused.
    `max_passes`: how often later requests may overtake a waiting request that does not fit. Then nobody
    passes it any more, so that it is admitted once enough of the running requests have ended.
    `inter_token_ms`: while streams run, what lies between two decode steps (a prefill chunk, copies of state)
    and one of them together should take no longer.
    None takes SLOWDOWN times the measured decode step, a third of a stream's speed, or LEAST_PAUSE_MS where
    steps are shorter.
    `prefix_caching`: publish checkpoints and continue from them.
    `draft_tokens`: proposed tokens to verify per step; 0 is ordinary decoding, None as many as the core can.
    """

    max_waiting: int = 256
    max_passes: int = 16
    inter_token_ms: float | None = None
    prefix_caching: bool = True
    draft_tokens: int | None = None

    def __post_init__(self) -> None:
        if (
            self.max_waiting < 1
            or self.max_passes < 0
            or (self.inter_token_ms is not None and not self.inter_token_ms > 0)
            or (self.draft_tokens is not None and self.draft_tokens < 0)
        ):
            raise CapacityError(f"impossible scheduler settings: {self}")

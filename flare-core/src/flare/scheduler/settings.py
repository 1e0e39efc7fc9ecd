"""What an operator of the server may choose about scheduling."""

from __future__ import annotations

from dataclasses import dataclass

from flare.errors import CapacityError


@dataclass(frozen=True, slots=True)
class Settings:
    """Scheduling settings.

    `max_waiting`: requests that may wait for admission; one more is refused.
    `max_passes`: how often later requests may overtake a waiting request that does not fit. Then nobody
    passes it any more, so that it is admitted once enough of the running requests have ended.
    `inter_token_ms`: while streams run, a prefill chunk and one decode step together should take no longer.
    `prefix_caching`: publish checkpoints and continue from them.
    """

    max_waiting: int = 256
    max_passes: int = 16
    inter_token_ms: float = 150.0
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        if self.max_waiting < 1 or self.max_passes < 0 or not self.inter_token_ms > 0:
            raise CapacityError(f"impossible scheduler settings: {self}")

"""What a request that is not taken is answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not taken; `message` is for the client."""

    reason: Literal["context_exceeded", "capacity_exceeded", "queue_full", "invalid_request"]
    message: str

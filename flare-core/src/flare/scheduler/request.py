"""One request between submission and its end, as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from flare.cache import Slot


class SamplingSpec(Protocol):
    """The part of the sampling parameters that has a capacity."""

    @property
    def logit_bias(self) -> Sequence[tuple[int, float]]: ...


class RequestSpec(Protocol):
    """What the scheduler reads of a submitted request (`flare.engine.messages.Submit` has this shape)."""

    @property
    def request_id(self) -> str: ...
    @property
    def prompt(self) -> Sequence[int]: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def stop_token_ids(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> int | None: ...
    @property
    def sampling(self) -> SamplingSpec: ...


class Phase(Enum):
    """Where a request stands, counting everything submitted to the device."""

    WAITING = "waiting"  # in the queue, holds nothing
    PREFILLING = "prefilling"  # holds a slot and pages; prompt tokens remain to be submitted
    DECODING = "decoding"  # the whole prompt is submitted
    ENDED = "ended"  # finished, cancelled or failed; its blocks are released behind their fences


class Request:
    """Mutable state of one request. Only the scheduler changes it.

    `consumed` and `drawn` run ahead: they count tokens of submitted programs. `generated` and `last_token`
    follow validated completions. `max_tokens` is already bounded by the context.
    """

    __slots__ = (
        "consumed",
        "device_finished",
        "drawn",
        "generated",
        "id",
        "last_frame",
        "last_token",
        "max_tokens",
        "pages",
        "passed",
        "phase",
        "prompt_length",
        "slot",
        "spec",
        "started",
        "stop_tokens",
    )

    def __init__(self, spec: RequestSpec, max_tokens: int) -> None:
        self.spec = spec
        self.id = spec.request_id
        self.prompt_length = len(spec.prompt)
        self.max_tokens = max_tokens
        self.stop_tokens = frozenset(spec.stop_token_ids)
        self.phase = Phase.WAITING
        self.passed = 0
        self.slot = Slot(index=-1, epoch=-1, row=-1)
        self.pages: tuple[int, ...] = ()
        self.started = False
        self.consumed = 0
        self.drawn = 0
        self.generated = 0
        self.last_token = -1
        self.last_frame = 0
        self.device_finished = False

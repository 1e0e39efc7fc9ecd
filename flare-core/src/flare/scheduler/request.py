"""One request between submission and its end, as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from flare.cache import ORDINARY, Checkpoint, Conditioning, PrefixIdentity, Slot, Standing


class ImageSpec(Protocol):
    """An image in a prompt (`flare.engine.messages.Image` has this shape)."""

    @property
    def start(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def identity(self) -> bytes: ...
    @property
    def grid(self) -> tuple[int, int, int]: ...


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
    def endpoints(self) -> Sequence[int]: ...
    @property
    def cache_salt(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def sampling(self) -> SamplingSpec: ...
    @property
    def images(self) -> Sequence[ImageSpec]: ...
    @property
    def grammar(self) -> str: ...


class Phase(Enum):
    """Where a request stands, counting everything submitted to the device."""

    WAITING = "waiting"  # in the queue, holds nothing
    PREFILLING = "prefilling"  # holds a slot and pages; tokens of its history remain to be submitted
    DECODING = "decoding"  # its whole history is submitted
    LEAVING = "leaving"  # told its end, or preempted; holds its blocks until its last checkpoint is taken
    ENDED = "ended"  # its blocks are released behind their fences


class Request:
    """Mutable state of one request. Only the scheduler changes it.

    `tokens` is its history, prompt and validated output. A request is admitted with `input_length` of them,
    of which `before` are output: none at first, everything generated so far after a preemption. `consumed`
    and `drawn` run ahead: they count tokens of submitted programs. `confirmed` (consumed tokens), `generated`
    and `last_token` follow validated completions. `max_tokens` is already bounded by the context.

    `pages` are physical pages in token order; the first `shared` belong to the chain of `base`, the
    checkpoint it continues from. `cached_tokens` were restored when it was first admitted. `features` has the
    first feature row of every image, by number, whose features are in place or on their way.
    """

    __slots__ = (
        "base",
        "before",
        "cached_tokens",
        "capture_due",
        "confirmed",
        "consumed",
        "device_finished",
        "drawn",
        "endpoints",
        "features",
        "generated",
        "id",
        "identity",
        "input_length",
        "last_frame",
        "last_token",
        "max_tokens",
        "page_updates",
        "pages",
        "passed",
        "phase",
        "preemptions",
        "prompt_length",
        "restored",
        "returns",
        "shared",
        "slot",
        "spec",
        "standing",
        "started",
        "stop_tokens",
        "tokens",
    )

    def __init__(self, spec: RequestSpec, max_tokens: int, root: bytes = b"") -> None:
        self.spec = spec
        self.id = spec.request_id
        self.tokens = list(spec.prompt)
        images = [Conditioning(image.start, image.identity) for image in spec.images]
        self.identity = PrefixIdentity(root + spec.cache_salt.encode(), spec.prompt, images)
        self.prompt_length = len(spec.prompt)
        self.max_tokens = max_tokens
        self.stop_tokens = frozenset(spec.stop_token_ids)
        self.phase = Phase.WAITING
        self.passed = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self.generated = 0
        self.last_token = -1
        self.device_finished = False
        self.standing: Standing = ORDINARY
        self.reset()

    def reset(self) -> None:
        """Hold nothing, with the whole history to go: before the first admission and after a preemption."""
        self.slot = Slot(index=-1, epoch=-1, row=-1)
        self.base: Checkpoint | None = None
        self.pages: list[int] = []
        self.shared = 0
        self.page_updates: list[tuple[int, int]] = []  # taken, and not in the device's table yet
        self.endpoints: list[int] = []
        self.features: dict[int, int] = {}
        self.capture_due = False
        self.returns = False  # whether it waits again after leaving
        self.input_length = len(self.tokens)
        self.before = self.generated
        self.started = False
        self.restored = False
        self.consumed = 0
        self.confirmed = 0
        self.drawn = self.generated
        self.last_frame = 0

    @property
    def last_message_end(self) -> int:
        """Tokens of the prompt up to the end of its last message; all of them where that is not known."""
        inside = (end for end in self.spec.endpoints if 0 < end < self.prompt_length)
        return max(inside, default=self.prompt_length)

    @property
    def constrained(self) -> bool:
        """Whether what it may draw next depends on what it drew: the host must know every token before it."""
        return bool(self.spec.grammar)

    @property
    def most_consumed(self) -> int:
        """Tokens consumed at the longest end; the last drawn token never is."""
        return self.prompt_length + self.max_tokens - 1

    def accept(self, tokens: Sequence[int]) -> None:
        """Validated output."""
        self.tokens.extend(tokens)
        self.identity.extend(tokens)
        self.generated += len(tokens)
        self.last_token = tokens[-1]

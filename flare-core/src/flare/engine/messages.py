"""Messages between the front process and the engine process (msgspec, MessagePack over ZeroMQ).

The front sends `Command`, the engine answers with `Event`. A request lives from `Submit` to exactly one
`Finished`, `Rejected` or `Failed`. Token ids only: text, templates and stop strings belong to the front.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "cancelled"]
RejectReason = Literal[
    "context_exceeded", "capacity_exceeded", "queue_full", "invalid_request", "shutting_down"
]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters, complete: defaults and ranges of the core are already applied.

    Meanings follow the OpenAI API and vLLM's `SamplingParams`. `top_k` 0, `top_p` 1.0 and `min_p` 0.0
    switch a filter off; penalties are neutral at 1.0 (repetition) and 0.0 (presence, frequency).
    """

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int  # unsigned 64 bit: the Philox key of this request
    logit_bias: tuple[tuple[int, float], ...] = ()


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image in a prompt: `tokens` placeholders from token `start` stand for as many features, made of
    `patches` (rows of the core's patch type, one behind the other) in a `grid` of (time, rows, columns).
    `identity` names everything that decides about them: equal identities are interchangeable."""

    start: int
    tokens: int
    identity: bytes
    grid: tuple[int, int, int]
    patches: bytes


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """Admit one sequence. `max_tokens` bounds its output, `stop_token_ids` ends it (EOS included by the
    front unless the client asked to ignore it); no stop token is drawn before `min_tokens` outputs.
    `logprobs` is the number of alternatives wanted per token, or None for no log-probabilities.
    `endpoints` are prompt lengths at which complete messages end, where a checkpoint is worth having.
    Requests share checkpoints only with those of the same `cache_salt`.
    `session` is the client's name of what the request belongs to, from which the cache takes what to give up
    first (`flare.cache.conversations`); empty when it has none.
    `images` are in order of their places. `rope_positions` has i32[3, len(prompt)]; empty, every token is at
    its own place. Output goes on behind the largest."""

    request_id: str
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    endpoints: tuple[int, ...] = ()
    cache_salt: str = ""
    session: str = ""
    images: tuple[Image, ...] = ()
    rope_positions: bytes = b""
    grammar: str = ""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop a request; unknown or finished ids are ignored. Answered by `Finished("cancelled")` when live."""

    request_id: str


class QueryStats(msgspec.Struct, frozen=True, tag="stats"):
    """Ask for one `Stats` event."""


class QueryCache(msgspec.Struct, frozen=True, tag="cache"):
    """Ask for one `CacheReport`, for people who look into the cache. Takes time in proportion to it."""

    most: int = 1000


class QueryTimeline(msgspec.Struct, frozen=True, tag="timeline"):
    """Ask for one `TimelineReport` of the steps behind number `since`."""

    since: int = 0


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Refuse new work; with `drain` finish what runs, otherwise cancel it; then exit."""

    drain: bool = True


Command = Submit | Cancel | QueryStats | QueryCache | QueryTimeline | Shutdown


class TokenLogprobs(msgspec.Struct, frozen=True):
    """Log-probability of the drawn token and the `(token, logprob)` alternatives, most likely first.
    Natural logarithms of the model's distribution before temperature, penalties and filters."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The engine loaded its core and serves. Sent once per connection. `load_spans` has, by part of loading,
    begin and end in milliseconds; parts overlap."""

    context: int
    concurrency: int
    ledger: dict[str, int]
    ready_seconds: float
    cache_tokens: int = 0
    snapshot_rows: int = 0
    load_spans: dict[str, tuple[float, float]] = {}


class Admitted(msgspec.Struct, frozen=True, tag="admitted"):
    """The request holds its resources: an HTTP 200 may be sent."""

    request_id: str


class Tokens(msgspec.Struct, frozen=True, kw_only=True, tag="tokens"):
    """Newly drawn tokens in order; `logprobs` has one entry per token when asked for."""

    request_id: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The request ended. It has released everything, except what a program still in flight on an
    asynchronous device may touch: that follows when the program is done. `stop_token` is the token that
    ended it, which was sent in the last `Tokens` event, or None when it ended at its length or was
    cancelled."""

    request_id: str
    reason: FinishReason
    stop_token: int | None = None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag="rejected"):
    """The request was never admitted. `message` is for the client."""

    request_id: str
    reason: RejectReason
    message: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Execution failed after admission. Logits that are not finite fail one request. A device error, or a
    record that does not fit what was submitted, fails every live request; the engine process then ends."""

    request_id: str
    message: str


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    """The core could not be loaded; the process ends. `code` and `field` are those of the FlareError
    (`flare.errors`), or "internal" for a bug."""

    code: str
    message: str
    field: str | None = None


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """One tier behind the device: what it holds, and counts since the start of the engine process."""

    name: str  # "host" or "disk"
    capacity_bytes: int
    bytes: int
    entries: int
    hits: int  # restorations that began
    stored: int
    evicted: int
    refused: int  # checkpoints larger than the tier has room for
    failed: int  # checkpoints that the system refused to write
    faults: int  # entries found damaged or gone when they were read


class Stats(msgspec.Struct, frozen=True, kw_only=True, tag="stats"):
    """A snapshot for health, metrics and leak checks.

    Free pages and rows are those a request could get: unused, or held by checkpoints nobody continues from.
    Counts run from the start of the engine process.
    """

    running: int
    waiting: int
    free_slots: int
    free_pages: int
    total_pages: int
    free_rows: int
    steps: int
    generated_tokens: int
    # Medians over the last 512 decode steps, milliseconds: whole step period and program time alone.
    step_period_ms: float
    program_ms: float
    # The prefix cache: what checkpoints hold, lookups at admission, and what became of checkpoints.
    cached_pages: int = 0
    checkpoints: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    cache_query_tokens: int = 0
    cache_hit_tokens: int = 0
    checkpoints_published: int = 0
    checkpoints_thinned: int = 0
    checkpoints_evicted_for_pages: int = 0
    checkpoints_evicted_for_rows: int = 0
    captures_skipped: int = 0  # no storage, because too much was pinned
    preemptions: int = 0
    # Tiers behind the device, the nearest first.
    stores: tuple[StoreStats, ...] = ()
    restores: int = 0
    restored_tokens: int = 0
    failed_restores: int = 0  # those requests computed what was to be restored
    # `flare.device.base.Device.growth`; None where the device does not count.
    device_growth: int | None = None
    # Of the engine process; 0 where the system does not say.
    resident_bytes: int = 0
    open_files: int = 0


class CachedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint: its number, its parent's, tokens of its prefix, pages of its own, how many requests
    continue from it, its place in the order of access (higher is later), and whether only side requests used
    it, so that it goes first."""

    number: int
    parent: int | None
    tokens: int
    pages: int
    pins: int
    accessed: int
    side: bool = False


class CacheReport(msgspec.Struct, frozen=True, kw_only=True, tag="cache_report"):
    """The most recently used checkpoints first; `total` counts those left out too."""

    total: int
    checkpoints: tuple[CachedPrefix, ...]


class StepTiming(msgspec.Struct, frozen=True, kw_only=True):
    """One step, in microseconds of the host: planning, packing the upload, submitting, waiting for the
    device, taking in the completion, sending events. `device_us` is the program's time as the device saw it,
    `gap_us` the device's time between the program before and this one; None when there was nothing to do
    before. A device that runs programs while they are submitted has its time in `submit_us`. `requests` are
    the lanes in use."""

    number: int
    program: str
    kind: str
    requests: int
    plan_us: float
    pack_us: float
    submit_us: float
    wait_us: float
    complete_us: float
    deliver_us: float
    device_us: float
    gap_us: float | None


class TimelineReport(msgspec.Struct, frozen=True, kw_only=True, tag="timeline_report"):
    """Steps that the engine remembers, the oldest first; `newest` is the number of the last one it did."""

    newest: int
    steps: tuple[StepTiming, ...]


Event = (
    TimelineReport
    | CacheReport
    | Ready
    | LoadFailed
    | Admitted
    | Tokens
    | Finished
    | Rejected
    | Failed
    | Stats
)

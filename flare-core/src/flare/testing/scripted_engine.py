"""An engine that says what it is told, for tests of everything in front of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from flare.engine.interface import Generation
from flare.engine.messages import (
    CacheReport,
    Finished,
    FinishReason,
    Ready,
    Stats,
    Submit,
    TimelineReport,
    TokenLogprobs,
    Tokens,
)
from flare.errors import ExecutionError, UnavailableError


@dataclass(frozen=True, kw_only=True)
class Script:
    """The life of one request.

    `tokens` are drawn in order and then repeated until the request's limit; drawing ends at a stop token of
    the request, except before `min_tokens`. `batch` tokens per event, `delay` seconds before each event,
    `admission_delay` seconds before admission. `refusal` is raised instead of admitting. After `fail_after`
    tokens the request fails. `cached` is reported as cached prompt tokens, `logprob` and `top` for every
    token.
    """

    tokens: Sequence[int]
    batch: int = 1
    delay: float = 0.0
    admission_delay: float = 0.0
    refusal: Exception | None = None
    fail_after: int | None = None
    cached: int = 0
    logprob: float = -0.5
    top: tuple[tuple[int, float], ...] = ()


@dataclass
class Counters:
    """What happened so far: admitted and ended requests, withdrawn before admission, cancelled after it."""

    admitted: int = 0
    withdrawn: int = 0
    cancelled: int = 0
    ended: int = 0
    submissions: list[Submit] = field(default_factory=list)


class ScriptedEngine:
    """Implements `flare.engine.interface.EngineClient` in the server's event loop.

    `script` is asked once per request; replace it at any time. Set `ready` to None for an engine that loads.
    """

    def __init__(self, script: Callable[[Submit], Script], context: int = 256, concurrency: int = 4) -> None:
        self.script = script
        self.counters = Counters()
        self.restarts = 0
        self.ready: Ready | None = Ready(
            context=context, concurrency=concurrency, ledger={}, ready_seconds=0.0
        )
        self._live: set[ScriptedGeneration] = set()
        self._dead: str | None = None

    @property
    def alive(self) -> bool:
        """False after `die`."""
        return self._dead is None

    @property
    def running(self) -> int:
        """Admitted requests that did not end."""
        return len(self._live)

    def die(self, reason: str = "the engine died") -> None:
        """Fail everything, now and from now on. Call it on the event loop."""
        self._dead = reason
        for generation in list(self._live):
            generation.fail(reason)

    async def submit(self, request: Submit) -> Generation:
        """See `EngineClient.submit`."""
        self.counters.submissions.append(request)
        script = self.script(request)
        try:
            await asyncio.sleep(script.admission_delay)
        except asyncio.CancelledError:
            self.counters.withdrawn += 1
            raise
        if self._dead is not None:
            raise ExecutionError(self._dead)
        if script.refusal is not None:
            raise script.refusal
        if self.ready is None:
            raise UnavailableError("the engine is not ready")
        self.counters.admitted += 1
        generation = ScriptedGeneration(request, script, self.counters, self._live)
        self._live.add(generation)
        return generation

    async def stats(self) -> Stats:
        """Requests and drawn tokens; everything else is zero."""
        return Stats(
            running=self.running,
            waiting=0,
            free_slots=0,
            free_pages=0,
            total_pages=0,
            free_rows=0,
            steps=0,
            generated_tokens=0,
            step_period_ms=0.0,
            program_ms=0.0,
        )

    async def cache_report(self, most: int = 1000) -> CacheReport:
        """Nothing is cached."""
        return CacheReport(total=0, checkpoints=())

    async def timeline(self, since: int = 0) -> TimelineReport:
        """Nothing runs here."""
        return TimelineReport(newest=0, steps=())


class ScriptedGeneration:
    """One admitted request. Draws whether or not anybody reads; unread tokens merge into one event."""

    def __init__(
        self, request: Submit, script: Script, counters: Counters, live: set[ScriptedGeneration]
    ) -> None:
        self._request = request
        self._script = script
        self._counters = counters
        self._live = live
        self._unread: list[int] = []
        self._end: Finished | ExecutionError | None = None
        self._changed = asyncio.Event()
        self._drawn = 0
        self._drawing = asyncio.ensure_future(self._draw())

    def cancel(self) -> None:
        """See `Generation.cancel`."""
        if self._end is None:
            self._counters.cancelled += 1
            self._drawing.cancel()
            self._finish("cancelled", None)

    def fail(self, message: str) -> None:
        """End with ExecutionError."""
        if self._end is None:
            self._drawing.cancel()
            self._ended(ExecutionError(message))

    async def __aiter__(self) -> AsyncIterator[Tokens | Finished]:
        """See `Generation`."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._unread:
                tokens, self._unread = tuple(self._unread), []
                yield Tokens(
                    request_id=self._request.request_id, tokens=tokens, logprobs=self._logprobs(len(tokens))
                )
            if self._end is not None and not self._unread:
                if isinstance(self._end, ExecutionError):
                    raise self._end
                yield self._end
                return

    async def _draw(self) -> None:
        while True:
            await asyncio.sleep(self._script.delay)
            for _ in range(self._script.batch):
                if self._drawn == self._script.fail_after:
                    self.fail("execution failed")
                    return
                if self._draw_one():
                    return
            self._changed.set()

    def _draw_one(self) -> bool:
        request, tokens = self._request, self._script.tokens
        stops = request.stop_token_ids
        token = tokens[self._drawn % len(tokens)]
        if self._drawn < request.min_tokens and token in stops:
            token = next(other for other in tokens if other not in stops)
        self._drawn += 1
        self._unread.append(token)
        if token in stops:
            self._finish("stop", token)
        elif self._drawn == request.max_tokens:
            self._finish("length", None)
        return self._end is not None

    def _logprobs(self, count: int) -> tuple[TokenLogprobs, ...]:
        wanted = self._request.logprobs
        if wanted is None:
            return ()
        return (TokenLogprobs(logprob=self._script.logprob, top=self._script.top[:wanted]),) * count

    def _finish(self, reason: FinishReason, stop_token: int | None) -> None:
        self._ended(
            Finished(
                request_id=self._request.request_id,
                reason=reason,
                stop_token=stop_token,
                prompt_tokens=len(self._request.prompt),
                output_tokens=self._drawn,
                cached_tokens=self._script.cached,
            )
        )

    def _ended(self, end: Finished | ExecutionError) -> None:
        self._end = end
        self._counters.ended += 1
        self._live.discard(self)
        self._changed.set()

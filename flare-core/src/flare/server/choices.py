"""One sequence of a request while it runs: engine events in, deltas of text out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, Protocol

import msgspec

from flare.engine.interface import EngineClient, Generation
from flare.engine.messages import Finished, TokenLogprobs, Tokens
from flare.engine.messages import Submit as Submission
from flare.errors import ExecutionError
from flare.frontend import PartedOutput
from flare.frontend.output_machine import Answer, CallEnd, CallStart, OutputEvent, joined
from flare.server.tools import NO_TOOLS, Tools

FinishReason = Literal["stop", "length"]

_TOKENS_AT_ONCE = 32  # a reader that fell behind gets thousands in one event; other streams go on meanwhile


class ChoiceMeter(Protocol):
    """Who counts what happens to a choice."""

    def admitted(self, choice: Choice) -> None: ...
    def drew(self, choice: Choice, count: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with its log-probabilities; `offset` is the character of the output where its text starts."""

    token: int
    offset: int
    logprobs: TokenLogprobs


@dataclass(slots=True)
class Delta:
    """What is new: events of the output, scored tokens whose text is shown, and at the end the reason."""

    events: list[OutputEvent] = field(default_factory=list)
    scored: list[ScoredToken] = field(default_factory=list)
    finish_reason: FinishReason | None = None


class Choice:
    """`index` is the choice's place in the response, `echo` text to show before the output, `first` whether
    the prompt is counted with this choice (not again for its siblings). `submit` with `max_tokens` 0 never
    reaches the engine. `called` are names of the tools whose calls are complete.

    Moments, in seconds of the monotonic clock, 0 until they come: `arrived_at` (of the request),
    `submitted_at`, `admitted_at`, and `first_at` and `last_at` of its tokens, of which `drawn` came so far,
    `first_drawn` at the first moment."""

    def __init__(
        self,
        index: int,
        submit: Submission,
        output: PartedOutput,
        echo: str,
        first: bool,
        meter: ChoiceMeter,
        tools: Tools = NO_TOOLS,
    ) -> None:
        self.index = index
        self.tools = tools
        self.called: list[str] = []
        self._names: dict[int, str] = {}
        self._enough = False
        self.first = first
        self.echo = echo
        self.prompt_tokens = len(submit.prompt)
        self.max_tokens = submit.max_tokens
        self.cached_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.arrived_at = self.submitted_at = self.admitted_at = self.first_at = self.last_at = 0.0
        self.drawn = self.first_drawn = 0
        self._meter = meter
        self._submit: Submission | None = submit if submit.max_tokens else None
        self._parts = output
        self._output = output.text
        self._generation: Generation | None = None
        self._unshown: list[ScoredToken] = []

    @property
    def output_tokens(self) -> int:
        """Tokens drawn so far, up to the one that ended the output."""
        return self._output.tokens

    @property
    def reasoning_tokens(self) -> int:
        """How many of them were reasoning."""
        return self._parts.reasoning_tokens

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the output, if one did."""
        return self._output.stop_string

    def name_session(self, session: str) -> None:
        """The client's name of what the choice belongs to, for the engine. Before admission."""
        if self._submit is not None:
            self._submit = msgspec.structs.replace(self._submit, session=session)

    async def admit(self, engine: EngineClient) -> None:
        """Return once the engine admitted the sequence. Raises what `EngineClient.submit` raises."""
        if self._submit is not None:
            submit, self._submit = self._submit, None  # the prompt is not needed twice
            self.submitted_at = monotonic()
            self._generation = await engine.submit(submit)
            self.admitted_at = monotonic()
            self._meter.admitted(self)

    def cancel(self) -> None:
        """Ask the engine to stop; without effect before admission and after the end."""
        if self._generation is not None:
            self._generation.cancel()

    async def deltas(self) -> AsyncIterator[Delta]:
        """Ends after the delta with a finish reason. Raises ExecutionError when the engine fails, and
        ToolChoiceError in the place of a last delta that is not what was asked for."""
        if self._generation is None:
            self.finish_reason = "length"
            yield Delta(finish_reason="length")
            return
        async for event in self._generation:
            if isinstance(event, Finished):
                yield self._finish(event)
                self._generation = None
                return
            self._meter.drew(self, len(event.tokens))
            for start in range(0, len(event.tokens), _TOKENS_AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                events = self._take(event, start)
                scored = self._shown_tokens()
                if events or scored:
                    yield Delta(events, scored)
                if self._output.cut or self._enough:
                    self._generation.cancel()
                    break
        raise ExecutionError("the engine ended a request without saying why")

    def _take(self, event: Tokens, start: int) -> list[OutputEvent]:
        events: list[OutputEvent] = []
        output = self._output
        for position, token in enumerate(event.tokens[start : start + _TOKENS_AT_ONCE], start):
            if output.stopped or self._enough:
                break
            offset = output.decoded
            events += self._noted(self._parts.feed(token))
            # A stop token has no text, so no place in the log-probabilities either.
            if event.logprobs and (output.cut or not output.stopped):
                self._unshown.append(ScoredToken(token, offset, event.logprobs[position]))
        return joined(events)

    def _noted(self, events: list[OutputEvent]) -> list[OutputEvent]:
        """Those of `events` that are shown; behind the last call that may come there are none."""
        shown: list[OutputEvent] = []
        for event in events:
            match event:
                case Answer() if not self.tools.answers:
                    continue
                case CallStart(index, name):
                    self._names[index] = name
                case CallEnd(index):
                    self.called.append(self._names[index])
                    self._enough = not self.tools.parallel
            shown.append(event)
            if self._enough:
                break
        return shown

    def _finish(self, event: Finished) -> Delta:
        self.cached_tokens = event.cached_tokens
        ended = self._output.stopped or self._enough
        events = [] if self._enough else joined(self._noted(self._parts.finish()))
        if event.reason == "cancelled" and not ended:
            raise ExecutionError("the engine cancelled the request")
        scored = self._shown_tokens() if self._output.cut else self._unshown
        stopped = self._output.stopped or self._enough or event.reason == "stop"
        if stopped:
            self.tools.check(self.called)
        self.finish_reason = "stop" if stopped else "length"
        return Delta(events, scored, self.finish_reason)

    def _shown_tokens(self) -> list[ScoredToken]:
        """Take the tokens whose text has begun to be shown."""
        if not self._unshown:
            return []
        shown = self._output.shown
        count = sum(1 for entry in self._unshown if entry.offset < shown)
        taken, self._unshown = self._unshown[:count], self._unshown[count:]
        return taken

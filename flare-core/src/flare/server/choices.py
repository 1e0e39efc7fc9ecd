"""One sequence of a request while it runs: engine events in, deltas of text out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from flare.engine.interface import EngineClient, Generation
from flare.engine.messages import Finished, TokenLogprobs, Tokens
from flare.engine.messages import Submit as Submission
from flare.errors import ExecutionError
from flare.frontend import TextOutput

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with its log-probabilities; `offset` is the character of the output where its text starts."""

    token: int
    offset: int
    logprobs: TokenLogprobs


@dataclass(slots=True)
class Delta:
    """What is new: text to show, scored tokens whose text is shown, and at the end the reason."""

    text: str
    scored: list[ScoredToken]
    finish_reason: FinishReason | None = None


class Choice:
    """`index` is the choice's place in the response, `echo` text to show before the output, `first` whether
    the prompt is counted with this choice (not again for its siblings). `submit` with `max_tokens` 0 never
    reaches the engine."""

    def __init__(self, index: int, submit: Submission, output: TextOutput, echo: str, first: bool) -> None:
        self.index = index
        self.first = first
        self.echo = echo
        self.prompt_tokens = len(submit.prompt)
        self.cached_tokens = 0
        self._submit = submit
        self._output = output
        self._generation: Generation | None = None
        self._unshown: list[ScoredToken] = []

    @property
    def output_tokens(self) -> int:
        """Tokens drawn so far, up to the one that ended the output."""
        return self._output.tokens

    async def admit(self, engine: EngineClient) -> None:
        """Return once the engine admitted the sequence. Raises what `EngineClient.submit` raises."""
        if self._submit.max_tokens:
            self._generation = await engine.submit(self._submit)

    def cancel(self) -> None:
        """Ask the engine to stop; without effect before admission and after the end."""
        if self._generation is not None:
            self._generation.cancel()

    async def deltas(self) -> AsyncIterator[Delta]:
        """Ends after the delta with a finish reason. Raises ExecutionError when the engine fails."""
        if self._generation is None:
            yield Delta("", [], "length")
            return
        async for event in self._generation:
            if isinstance(event, Finished):
                yield self._finish(event)
                self._generation = None
                return
            text = self._take(event)
            scored = self._shown_tokens()
            if text or scored:
                yield Delta(text, scored)
            if self._output.cut:
                self._generation.cancel()
        raise ExecutionError("the engine ended a request without saying why")

    def _take(self, event: Tokens) -> str:
        text = ""
        output = self._output
        for position, token in enumerate(event.tokens):
            if output.stopped:
                break
            offset = output.decoded
            text += output.feed(token)
            # A stop token has no text, so no place in the log-probabilities either.
            if event.logprobs and (output.cut or not output.stopped):
                self._unshown.append(ScoredToken(token, offset, event.logprobs[position]))
        return text

    def _finish(self, event: Finished) -> Delta:
        self.cached_tokens = event.cached_tokens
        text = self._output.finish()
        if event.reason == "cancelled" and not self._output.stopped:
            raise ExecutionError("the engine cancelled the request")
        scored = self._shown_tokens() if self._output.cut else self._unshown
        stopped = self._output.stopped or event.reason == "stop"
        return Delta(text, scored, "stop" if stopped else "length")

    def _shown_tokens(self) -> list[ScoredToken]:
        """Take the tokens whose text has begun to be shown."""
        if not self._unshown:
            return []
        shown = self._output.shown
        count = sum(1 for entry in self._unshown if entry.offset < shown)
        taken, self._unshown = self._unshown[:count], self._unshown[count:]
        return taken

"""How a response is written: whole, or as events of a stream.

`Format` is what every protocol has; `CompletionsFormat` what chat and text completions share. Chunks are made
for every token, so their constant parts are prepared once and joined as bytes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from flare.frontend import TokenBytes
from flare.frontend.output_machine import Answer, OutputEvent
from flare.server.choices import Choice, Delta, ScoredToken
from flare.server.error_shapes import error_event
from flare.server.jobs import Job
from flare.server.outcome import Outcome
from flare.server.usage import usage_of
from flare.server.wire import json_bytes

Result = tuple[Choice, Outcome, list[ScoredToken]]
"""A choice that ended, all of its output, and its scored tokens."""


class Format(ABC):
    """Writes the response of one job."""

    def __init__(self, job: Job, model_name: str, vocabulary: TokenBytes) -> None:
        self._job = job
        self._model = model_name
        self._vocabulary = vocabulary
        self._created = int(time.time())

    @abstractmethod
    def body(self, results: Sequence[Result]) -> bytes:
        """The whole response, with every choice."""

    def begin(self) -> bytes:
        """Events in front of everything else."""
        return b""

    @abstractmethod
    def chunks(self, choice: Choice, delta: Delta) -> bytes:
        """Events for one delta."""

    @abstractmethod
    def end(self) -> bytes:
        """Events behind the last delta of a stream that went well."""

    def beat(self) -> bytes:
        """A sign of life in a stream that is silent: a comment, which is no event to whoever reads."""
        return b": keep-alive\n\n"

    def failure(self, error: Exception, request_id: str) -> bytes:
        """The event that ends a stream in the place of all others when it failed."""
        return error_event(error)


class CompletionsFormat(Format):
    """Chunks of choices, then `[DONE]`."""

    object_name: str
    chunk_object_name: str

    def __init__(self, job: Job, model_name: str, vocabulary: TokenBytes) -> None:
        super().__init__(job, model_name, vocabulary)
        self._common = {"id": job.id, "created": self._created, "model": model_name}
        fields = json_bytes({**self._common, "object": self.chunk_object_name})
        self._head = b"data: " + fields[:-1] + b',"choices":['
        self._opened: set[int] = set()
        self._tail = b',"usage":null}\n\n' if job.include_usage else b"}\n\n"

    @abstractmethod
    def choice(self, outcome: Outcome, choice: Choice) -> dict[str, Any]:
        """The fields of a whole choice that hold its output."""

    @abstractmethod
    def opening(self, choice: Choice) -> bytes | None:
        """Fields of the chunk that comes before a choice's first output, if there is one."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """Fields of a chunk with text of the answer."""

    def event(self, choice: Choice, event: OutputEvent) -> bytes | None:
        """Fields of a chunk with anything else; None without one."""
        return None

    @abstractmethod
    def closing(self, choice: Choice) -> bytes:
        """Fields of the chunk with the finish reason."""

    def reason(self, choice: Choice) -> str:
        """The finish reason."""
        assert choice.finish_reason is not None
        return choice.finish_reason

    @abstractmethod
    def logprobs(self, scored: Sequence[ScoredToken], choice: Choice) -> msgspec.Raw:
        """The `logprobs` object."""

    def body(self, results: Sequence[Result]) -> bytes:
        """See `Format`."""
        wanted = self._job.logprobs
        choices = [
            {
                "index": choice.index,
                **self.choice(outcome, choice),
                "logprobs": self.logprobs(scored, choice) if wanted else None,
                "finish_reason": self.reason(choice),
            }
            for choice, outcome, scored in results
        ]
        return json_bytes(
            {
                **self._common,
                "object": self.object_name,
                "choices": choices,
                "usage": usage_of(self._job.choices),
            }
        )

    def chunks(self, choice: Choice, delta: Delta) -> bytes:
        """An opening chunk before a choice's first, one per event, the finish reason. Scored tokens are in
        the first chunk with text, or in one of their own."""
        data = b""
        if choice.index not in self._opened:
            self._opened.add(choice.index)
            opening = self.opening(choice)
            if opening is not None:
                data += self._chunk(choice, opening)
        scored = delta.scored
        for event in delta.events:
            if isinstance(event, Answer):
                data += self._piece(choice, event.text, scored)
                scored = []
            elif (fields := self.event(choice, event)) is not None:
                data += self._chunk(choice, fields)
        if scored:
            data += self._piece(choice, "", scored)
        if delta.finish_reason is not None:
            reason = b'"%s"' % self.reason(choice).encode()
            data += self._chunk(choice, self.closing(choice), reason=reason)
        return data

    def end(self) -> bytes:
        """Usage, where it was asked for, and the mark of the end."""
        usage = b""
        if self._job.include_usage:
            usage = self._head + b'],"usage":' + json_bytes(usage_of(self._job.choices)) + b"}\n\n"
        return usage + b"data: [DONE]\n\n"

    def _piece(self, choice: Choice, text: str, scored: Sequence[ScoredToken]) -> bytes:
        logprobs = bytes(self.logprobs(scored, choice)) if scored else b"null"
        return self._chunk(choice, self.piece(text), logprobs)

    def _chunk(
        self, choice: Choice, fields: bytes, logprobs: bytes = b"null", reason: bytes = b"null"
    ) -> bytes:
        tail = self._tail
        if self._job.continuous_usage:
            tail = b',"usage":' + json_bytes(usage_of(self._job.choices)) + b"}\n\n"
        return b'%s{"index":%d,%s,"logprobs":%s,"finish_reason":%s}]%s' % (
            self._head,
            choice.index,
            fields,
            logprobs,
            reason,
            tail,
        )

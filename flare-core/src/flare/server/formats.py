"""Chat and text completions: how choices and chunks look on the wire.

Chunks are made for every token, so their constant parts are prepared once and joined as bytes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from flare.frontend import TokenBytes
from flare.server.choices import Choice, Delta, ScoredToken
from flare.server.jobs import Job
from flare.server.usage import usage_of
from flare.server.wire import json_bytes


class Format(ABC):
    """Writes the response of one job."""

    object_name: str
    chunk_object_name: str

    def __init__(self, job: Job, model_name: str, vocabulary: TokenBytes) -> None:
        self._job = job
        self._vocabulary = vocabulary
        self._common = {"id": job.id, "created": int(time.time()), "model": model_name}
        fields = json_bytes({**self._common, "object": self.chunk_object_name})
        self._head = b"data: " + fields[:-1] + b',"choices":['
        self._opened: set[int] = set()
        self._tail = b',"usage":null}\n\n' if job.include_usage else b"}\n\n"

    @abstractmethod
    def choice(self, delta: Delta, choice: Choice) -> dict[str, Any]:
        """The fields of a whole choice that hold its text, all of which is in `delta`."""

    @abstractmethod
    def opening(self, choice: Choice) -> bytes | None:
        """Fields of the chunk that comes before a choice's first text, if there is one."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """Fields of a chunk with text."""

    def reasoning(self, text: str) -> bytes:
        """Fields of a chunk with reasoning, which only chats have."""
        raise AssertionError("a format without reasoning")

    @abstractmethod
    def closing(self) -> bytes:
        """Fields of the chunk with the finish reason."""

    @abstractmethod
    def logprobs(self, scored: Sequence[ScoredToken], choice: Choice) -> msgspec.Raw:
        """The `logprobs` object."""

    def body(self, results: Sequence[tuple[Choice, Delta]]) -> bytes:
        """The whole response, from every choice with all of its text in one delta."""
        wanted = self._job.logprobs
        choices = [
            {
                "index": choice.index,
                **self.choice(delta, choice),
                "logprobs": self.logprobs(delta.scored, choice) if wanted else None,
                "finish_reason": delta.finish_reason,
            }
            for choice, delta in results
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
        """The events for one delta: an opening chunk before a choice's first, text, finish reason."""
        data = b""
        if choice.index not in self._opened:
            self._opened.add(choice.index)
            opening = self.opening(choice)
            if opening is not None:
                data += self._chunk(choice, opening)
        if delta.reasoning:
            data += self._chunk(choice, self.reasoning(delta.reasoning))
        if delta.text or delta.scored:
            logprobs = b"null"
            if delta.scored:
                logprobs = bytes(self.logprobs(delta.scored, choice))
            data += self._chunk(choice, self.piece(delta.text), logprobs)
        if delta.finish_reason is not None:
            data += self._chunk(choice, self.closing(), reason=b'"%s"' % delta.finish_reason.encode())
        return data

    def end(self) -> bytes:
        """The events behind the last chunk of a stream that went well."""
        usage = b""
        if self._job.include_usage:
            usage = self._head + b'],"usage":' + json_bytes(usage_of(self._job.choices)) + b"}\n\n"
        return usage + b"data: [DONE]\n\n"

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

"""Responses of the Messages protocol: a message of blocks, whole or as named events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.frontend.output_machine import (
    Answer,
    Arguments,
    Broken,
    CallEnd,
    CallStart,
    OutputEvent,
    Reasoning,
)
from flare.server.choices import Choice, Delta
from flare.server.formats import Format, Result
from flare.server.messages.errors import messages_error_event
from flare.server.outcome import new_tool_use_id
from flare.server.wire import json_bytes, named_event

SIGNATURE = "unsigned"
"""Of reasoning: the protocol wants one, and this server does not look at it when it comes back."""


class MessagesFormat(Format):
    """https://docs.claude.com/en/docs/build-with-claude/streaming: blocks begin and end one behind the other.
    Calls that do not follow the model's format are in a field of our own, `broken_tool_calls`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kind: str | None = None  # of the block that is open
        self._index = -1
        self._broken: list[str] = []

    def body(self, results: Sequence[Result]) -> bytes:
        """See `Format`."""
        ((choice, outcome, _),) = results
        content: list[dict[str, Any]] = []
        if outcome.reasoning:
            content.append({"type": "thinking", "thinking": outcome.reasoning, "signature": SIGNATURE})
        if outcome.answer:
            content.append({"type": "text", "text": outcome.answer})
        content += [
            {
                "type": "tool_use",
                "id": new_tool_use_id(),
                "name": call.name,
                "input": call.parsed,
            }
            for call in outcome.calls.values()
            if call.complete
        ]
        message = self._message(content, _stop_reason(choice), choice.stop_string, _usage(choice))
        broken = outcome.broken + [call.arguments for call in outcome.calls.values() if not call.complete]
        return json_bytes(message | ({"broken_tool_calls": broken} if broken else {}))

    def begin(self) -> bytes:
        """See `Format`. A ping follows: the first token may take its time."""
        usage = _usage(self._job.choices[0])
        return _event("message_start", message=self._message([], None, None, usage)) + self.beat()

    def beat(self) -> bytes:
        """See `Format`; the protocol has an event for it."""
        return _event("ping")

    def chunks(self, choice: Choice, delta: Delta) -> bytes:
        """See `Format`."""
        data = b"".join(self._written(event) for event in delta.events)
        if delta.finish_reason is not None:
            data += self._closed()
            ending = {"stop_reason": _stop_reason(choice), "stop_sequence": choice.stop_string}
            broken: dict[str, Any] = {"broken_tool_calls": self._broken} if self._broken else {}
            data += _event("message_delta", delta=ending, usage=_usage(choice), **broken)
        return data

    def end(self) -> bytes:
        """See `Format`."""
        return _event("message_stop")

    def failure(self, error: Exception, request_id: str) -> bytes:
        """See `Format`."""
        return messages_error_event(error, request_id)

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, stop: str | None, usage: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "id": self._job.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": usage,
        }

    def _written(self, event: OutputEvent) -> bytes:
        match event:
            case Reasoning(text):
                opening = self._opened("thinking", thinking="", signature="")
                return opening + self._delta("thinking_delta", thinking=text)
            case Answer(text):
                return self._opened("text", text="") + self._delta("text_delta", text=text)
            case CallStart(_, name):
                return self._closed() + self._opened("tool_use", id=new_tool_use_id(), name=name, input={})
            case Arguments(_, text):
                return self._delta("input_json_delta", partial_json=text)
            case CallEnd():
                return self._closed()
            case Broken(_, text):
                self._broken.append(text)
                return self._closed()

    def _opened(self, kind: str, **fields: Any) -> bytes:
        """The beginning of a block of `kind`, unless one is open; another one ends."""
        if self._kind == kind:
            return b""
        data = self._closed()
        self._kind = kind
        self._index += 1
        return data + _event("content_block_start", index=self._index, content_block={"type": kind, **fields})

    def _closed(self) -> bytes:
        if self._kind is None:
            return b""
        data = b""
        if self._kind == "thinking":
            data = self._delta("signature_delta", signature=SIGNATURE)
        self._kind = None
        return data + _event("content_block_stop", index=self._index)

    def _delta(self, kind: str, **fields: Any) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})


def _event(kind: str, **fields: Any) -> bytes:
    return named_event(kind, fields)


def _stop_reason(choice: Choice) -> str:
    if choice.finish_reason == "length":
        return "max_tokens"
    if choice.called:
        return "tool_use"
    return "end_turn" if choice.stop_string is None else "stop_sequence"


def _usage(choice: Choice) -> dict[str, int]:
    """Tokens so far. What was found in the cache counts apart from the rest of the input, and is known when
    the output ended."""
    return {
        "input_tokens": choice.prompt_tokens - choice.cached_tokens,
        "output_tokens": choice.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": choice.cached_tokens,
    }

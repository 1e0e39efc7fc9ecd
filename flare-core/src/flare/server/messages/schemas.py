"""Shapes of responses, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from flare.server.schemas import Shape


class MessageUsage(Shape):
    """Token counts; `input_tokens` without those that were found in the cache."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


class Message(Shape):
    """A whole message. Blocks are of type `thinking`, `text` and `tool_use`."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage
    broken_tool_calls: list[str] | None = None


class CountedTokens(Shape):
    """Tokens of a prompt."""

    input_tokens: int


class UnsupportedFields(Shape):
    """Fields without which a client can send its request again."""

    error_code: str
    unsupported: list[str]


class MessagesErrorDetail(Shape):
    """What went wrong."""

    type: str
    message: str
    param: str | None
    code: str
    details: UnsupportedFields | None = None


class MessagesError(Shape):
    """The protocol's envelope of errors."""

    type: Literal["error"]
    error: MessagesErrorDetail
    request_id: str

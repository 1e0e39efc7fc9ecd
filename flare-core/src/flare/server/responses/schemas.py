"""Shapes of responses, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class ResponseUsage(BaseModel):
    """Token counts."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class Response(BaseModel):
    """A whole response; what is not listed repeats the request. Items are of type `reasoning`, `message`,
    `function_call` and `custom_tool_call`."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage
    broken_tool_calls: list[str] | None = None

"""Bodies of `/v1/responses`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from flare.server.requests import Count


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Reasoning(_Part):
    """How much to reason. A summary is not made: the reasoning itself is in the response."""

    effort: str | None = None
    summary: str | None = None


class TextOptions(_Part):
    """`format` of the answer."""

    format: dict[str, Any] | None = None


class ResponsesRequest(_Part):
    """`POST /v1/responses`. Items, parts and tools are checked where they are read."""

    model: str | None = None
    input: str | list[Any]
    instructions: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    max_output_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stream: bool | None = None
    include: list[str] | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=1024)] | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    truncation: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None

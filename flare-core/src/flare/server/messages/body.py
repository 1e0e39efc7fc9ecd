"""Bodies of `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from flare.server.requests import MOST_STOPS, Count

Content = str | list[dict[str, Any]]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class InputMessage(_Part):
    """One message. `system` may stand between the others: agents put reminders there."""

    role: Literal["user", "assistant", "system"]
    content: Content


class Tool(_Part):
    """A tool of the client's (no `type`, or `custom`). Other types are the service's own and are left out."""

    type: str | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(_Part):
    """`auto`, `any`, `none`, or `tool` with its name."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(_Part):
    """Whether to reason; how long is up to the model."""

    type: Literal["enabled", "disabled", "adaptive"]


class OutputConfig(_Part):
    """`effort` of the reasoning, and `format` of the answer: `{"type": "json_schema", "schema"}`."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountRequest(_Part):
    """`POST /v1/messages/count_tokens`."""

    model: str | None = None
    messages: Annotated[list[InputMessage], Field(min_length=1, fail_fast=True)]
    system: Content | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    thread: dict[str, Any] | None = None


class MessagesRequest(CountRequest):
    """`POST /v1/messages`."""

    max_tokens: Count
    stream: bool | None = None
    stop_sequences: Annotated[
        list[Annotated[str, Field(min_length=1)]] | None, Field(max_length=MOST_STOPS)
    ] = None
    temperature: float | None = None
    top_k: Annotated[int, Field(lt=1 << 31)] | None = None
    top_p: float | None = None

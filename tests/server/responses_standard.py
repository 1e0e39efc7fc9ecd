"""What the Responses standard demands of a response and of its events: fields that must be there, with their
types (Open Responses, version 2026-04-24, https://www.openresponses.org/reference), and an order.

Reasoning has the events of the OpenAI API (`response.reasoning_text.*`), which clients know; the standard
calls them `response.reasoning.*`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(TypedDict):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]


class ReasoningText(TypedDict):
    type: Literal["reasoning_text"]
    text: str


Part = Annotated[OutputText | ReasoningText, Field(discriminator="type")]


class Message(TypedDict):
    type: Literal["message"]
    id: str
    status: Status
    role: Literal["assistant"]
    content: list[Part]


class FunctionCall(TypedDict):
    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class Reasoning(TypedDict):
    type: Literal["reasoning"]
    id: str
    content: list[Part]
    summary: list[Any]


Item = Annotated[Message | FunctionCall | Reasoning, Field(discriminator="type")]


class FunctionTool(TypedDict):
    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None


class CachedTokens(TypedDict):
    cached_tokens: int


class ReasoningTokens(TypedDict):
    reasoning_tokens: int


class Usage(TypedDict):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: CachedTokens
    output_tokens_details: ReasoningTokens


class Text(TypedDict):
    format: dict[str, Any]


class Effort(TypedDict):
    effort: Literal["none", "low", "medium", "high", "xhigh"] | None
    summary: Literal["concise", "detailed", "auto"] | None


class IncompleteDetails(TypedDict):
    reason: str


class Error(TypedDict):
    code: str
    message: str


class Response(TypedDict):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    incomplete_details: IncompleteDetails | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[Item]
    error: Error | None
    tools: list[FunctionTool]
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any]
    truncation: Literal["auto", "disabled"]
    parallel_tool_calls: bool
    text: Text
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    temperature: float
    reasoning: Effort | None
    user: str | None
    usage: Usage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None


class _Event(TypedDict):
    sequence_number: int


class ResponseEvent(_Event):
    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: Response


class ItemEvent(_Event):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: Item


class _OfItem(_Event):
    item_id: str
    output_index: int


class PartEvent(_OfItem):
    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: int
    part: Part


class TextDelta(_OfItem):
    type: Literal["response.output_text.delta", "response.reasoning_text.delta"]
    content_index: int
    delta: str


class TextDone(_OfItem):
    type: Literal["response.output_text.done", "response.reasoning_text.done"]
    content_index: int
    text: str


class ArgumentsDelta(_OfItem):
    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsDone(_OfItem):
    type: Literal["response.function_call_arguments.done"]
    arguments: str


Event = Annotated[
    ResponseEvent | ItemEvent | PartEvent | TextDelta | TextDone | ArgumentsDelta | ArgumentsDone,
    Field(discriminator="type"),
]
RESPONSE: TypeAdapter[Response] = TypeAdapter(Response)
EVENT: TypeAdapter[Any] = TypeAdapter(Event)


def check_order(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that a stream ends with, put together from its events alone: numbers without a gap, one id
    per response and item, items and parts that begin, grow and end one behind the other."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    created, running, *inner, last = events
    assert (created["type"], running["type"]) == ("response.created", "response.in_progress")
    assert created["response"] == running["response"]
    first, final = created["response"], last["response"]
    assert last["type"] == f"response.{final['status']}"
    assert (first["status"], first["output"], first["usage"]) == ("in_progress", [], None)
    ending = {"status", "output", "usage", "completed_at", "incomplete_details", "error"}
    assert {k: v for k, v in first.items() if k not in ending} == {
        k: v for k, v in final.items() if k not in ending
    }
    finished: list[dict[str, Any]] = []
    while inner:
        finished.append(_item(inner, len(finished)))
    assert final["output"] == finished
    assert len({item["id"] for item in finished}) == len(finished)
    return final


def _item(events: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """Take the events of one item; returns it."""
    added = events.pop(0)
    assert (added["type"], added["output_index"]) == ("response.output_item.added", index)
    identity = added["item"]["id"]
    kind, grown = None, ""
    while events[0]["type"] != "response.output_item.done":
        event = events.pop(0)
        assert (event["item_id"], event["output_index"]) == (identity, index)
        if event["type"] == "response.content_part.added":
            assert (kind, event["content_index"], event["part"]["text"]) == (None, 0, "")
            kind = event["part"]["type"]
        elif event["type"].endswith(".delta"):
            assert event["type"] == f"response.{kind or 'function_call_arguments'}.delta"
            grown += event["delta"]
        elif event["type"] == "response.content_part.done":
            assert event["part"] == {**event["part"], "type": kind, "text": grown}
        else:
            assert event["type"] == f"response.{kind or 'function_call_arguments'}.done"
            assert event.get("text", event.get("arguments")) == grown
    done = events.pop(0)["item"]
    began = {**done, "status": "in_progress", **({"content": []} if kind else {"arguments": ""})}
    assert added["item"] == began, "an item begins without its content"
    if kind is None:
        assert done["arguments"] == grown
    else:
        (part,) = done["content"]
        assert (part["type"], part["text"]) == (kind, grown)
    return done

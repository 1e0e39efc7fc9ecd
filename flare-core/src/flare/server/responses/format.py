"""Responses on the wire: one object, or typed events that are numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

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
from flare.server.errors import public_error
from flare.server.formats import Format, Result
from flare.server.responses.output import CallItem, MessageItem, OutputItem, ReasoningItem, TextItem
from flare.server.responses.response import response_object
from flare.server.responses.turn import SEALED_REASONING, ResponsesTurn
from flare.server.wire import json_bytes, named_event

Event = tuple[str, dict[str, Any]]


class ResponsesFormat(Format):
    """https://platform.openai.com/docs/api-reference/responses-streaming. A whole response is what the events
    of a stream add up to: both come from the same machine. Calls that do not follow the model's format are in
    a field of our own, `broken_tool_calls`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turn = cast(ResponsesTurn, self._job.turn)
        self._sealed = SEALED_REASONING in (self._turn.body.include or ())
        self._number = -1
        self._output: list[dict[str, Any]] = []
        self._item: TextItem | CallItem | None = None
        self._broken: list[str] = []

    def body(self, results: Sequence[Result]) -> bytes:
        """See `Format`."""
        ((choice, outcome, _),) = results
        for event in outcome.events:
            for _ in self._events(event):
                pass
        for _ in self._closed(_status(choice)):
            pass
        return json_bytes(self._ended(choice))

    def begin(self) -> bytes:
        """See `Format`."""
        response = self._response("in_progress")
        return self._written("response.created", response=response) + self._written(
            "response.in_progress", response=response
        )

    def chunks(self, choice: Choice, delta: Delta) -> bytes:
        """See `Format`."""
        data = b"".join(
            self._written(kind, **fields) for event in delta.events for kind, fields in self._events(event)
        )
        if delta.finish_reason is None:
            return data
        status = _status(choice)
        data += b"".join(self._written(kind, **fields) for kind, fields in self._closed(status))
        return data + self._written(f"response.{status}", response=self._ended(choice))

    def end(self) -> bytes:
        """See `Format`."""
        return b""

    def failure(self, error: Exception, request_id: str) -> bytes:
        """See `Format`."""
        shown = public_error(error)
        detail = {"code": "server_error", "message": f"{shown} ({shown.code})"}
        return self._written("response.failed", response=self._response("failed", error=detail))

    def _ended(self, choice: Choice) -> dict[str, Any]:
        response = self._response(_status(choice), choice=choice)
        return response | ({"broken_tool_calls": self._broken} if self._broken else {})

    def _response(self, status: str, **options: Any) -> dict[str, Any]:
        return response_object(
            self._job,
            self._model,
            self._created,
            self._turn.body,
            status=status,
            output=list(self._output),
            **options,
        )

    def _events(self, event: OutputEvent) -> Iterator[Event]:
        match event:
            case Reasoning(text):
                yield from self._text(text, ReasoningItem, lambda: ReasoningItem(self._sealed))
            case Answer(text):
                yield from self._text(text, MessageItem, MessageItem)
            case CallStart(_, name):
                yield from self._closed("completed")
                yield from self._begun(CallItem(self._turn.offer.find(name)))
            case Arguments(_, text):
                yield from self._arguments(text)
            case CallEnd():
                yield from self._closed("completed")
            case Broken(_, text):
                self._broken.append(text)
                yield from self._closed("incomplete")

    def _text(self, text: str, kind: type[TextItem], make: Callable[[], TextItem]) -> Iterator[Event]:
        """Text of the item of `kind` that is open; without one another ends, and one begins with its part."""
        item = self._item
        if not isinstance(item, kind):
            yield from self._closed("completed")
            item = make()
            yield from self._begun(item)
            yield (
                "response.content_part.added",
                {**self._place(item), "content_index": 0, "part": item.part()},
            )
        item.pieces.append(text)
        yield f"{item.event}.delta", {**self._place(item), "content_index": 0, "delta": text, **item.extra}

    def _arguments(self, text: str) -> Iterator[Event]:
        """More of the call that is open."""
        item = self._item
        assert isinstance(item, CallItem)
        item.pieces.append(text)
        if not item.offered.custom:  # the input of a free-form tool is known when it is complete
            yield "response.function_call_arguments.delta", {**self._place(item), "delta": text}

    def _begun(self, item: TextItem | CallItem) -> Iterator[Event]:
        self._item = item
        added = {"output_index": len(self._output), "item": item.written("in_progress")}
        yield "response.output_item.added", added

    def _closed(self, status: str) -> Iterator[Event]:
        """The end of the item that is open."""
        item = self._item
        if item is None:
            return
        place = self._place(item)
        if isinstance(item, TextItem):
            yield f"{item.event}.done", {**place, "content_index": 0, "text": item.text, **item.extra}
            yield "response.content_part.done", {**place, "content_index": 0, "part": item.part()}
        elif item.offered.custom:
            yield "response.custom_tool_call_input.delta", {**place, "delta": item.input}
            yield "response.custom_tool_call_input.done", {**place, "input": item.input}
        else:
            ended = {"name": item.offered.name, "arguments": item.text}
            yield "response.function_call_arguments.done", {**place, **ended}
        written = item.written(status)
        yield "response.output_item.done", {"output_index": len(self._output), "item": written}
        self._output.append(written)
        self._item = None

    def _place(self, item: OutputItem) -> dict[str, Any]:
        return {"item_id": item.id, "output_index": len(self._output)}

    def _written(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return named_event(kind, {"sequence_number": self._number, **fields})


def _status(choice: Choice) -> str:
    return "incomplete" if choice.finish_reason == "length" else "completed"

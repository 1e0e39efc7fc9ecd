"""Output items: reasoning, a message, calls; finished ones as the response holds them."""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from flare.server.outcome import new_call_id
from flare.server.responses.items import seal
from flare.server.responses.offer import Offered


class OutputItem(ABC):
    """One item while it is written: `pieces` of text come one behind the other."""

    def __init__(self, prefix: str) -> None:
        self.id = prefix + secrets.token_hex(16)
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self.pieces)

    @abstractmethod
    def written(self, status: str) -> dict[str, Any]:
        """The item as it is now."""


class TextItem(OutputItem):
    """An item with one part of text. Its text comes in events `event`, which also have `extra` fields."""

    event: str
    extra: Mapping[str, Any] = {}

    @abstractmethod
    def part(self) -> dict[str, Any]:
        """The part as it is now."""


class ReasoningItem(TextItem):
    """`sealed`: the reasoning is also in `encrypted_content`, for clients that send only that back."""

    event = "response.reasoning_text"

    def __init__(self, sealed: bool) -> None:
        super().__init__("rs_")
        self._sealed = sealed

    def part(self) -> dict[str, Any]:
        """See `TextItem`."""
        return {"type": "reasoning_text", "text": self.text}

    def written(self, status: str) -> dict[str, Any]:
        """See `OutputItem`."""
        done = status != "in_progress"
        item: dict[str, Any] = {"type": "reasoning", "id": self.id, "status": status, "summary": []}
        item["content"] = [self.part()] if done else []
        if self._sealed:
            item["encrypted_content"] = seal(self.text) if done else ""
        return item


class MessageItem(TextItem):
    """The answer."""

    event = "response.output_text"
    extra: Mapping[str, Any] = {"logprobs": []}

    def __init__(self) -> None:
        super().__init__("msg_")

    def part(self) -> dict[str, Any]:
        """See `TextItem`."""
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def written(self, status: str) -> dict[str, Any]:
        """See `OutputItem`."""
        content = [self.part()] if status != "in_progress" else []
        return {
            "type": "message",
            "id": self.id,
            "status": status,
            "role": "assistant",
            "content": content,
        }


class CallItem(OutputItem):
    """A call of the tool that the client named so."""

    def __init__(self, offered: Offered) -> None:
        super().__init__("fc_")
        self.call_id = new_call_id()
        self.offered = offered

    @property
    def input(self) -> str:
        """Text that a free-form tool gets. What is no object with `input` is passed on as it is."""
        try:
            given = json.loads(self.text)["input"]
        except (ValueError, KeyError, TypeError):
            return self.text
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)

    def written(self, status: str) -> dict[str, Any]:
        """See `OutputItem`."""
        kind = "custom_tool_call" if self.offered.custom else "function_call"
        item: dict[str, Any] = {"type": kind, "id": self.id, "call_id": self.call_id}
        item["name"] = self.offered.name
        if self.offered.namespace is not None:
            item["namespace"] = self.offered.namespace
        started = status != "in_progress"
        if self.offered.custom:
            item["input"] = self.input if started else ""
        else:
            item["arguments"] = self.text if started else ""
        item["status"] = status
        return item

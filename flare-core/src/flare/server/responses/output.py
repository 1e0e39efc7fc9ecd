"""Output items: reasoning, a message, calls; finished ones as the response holds them."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from flare.server.outcome import new_call_id
from flare.server.responses.items import seal
from flare.server.responses.offer import Offered


def _id(prefix: str) -> str:
    return prefix + secrets.token_hex(16)


@dataclass(slots=True)
class OutputItem:
    """One item while it is written. `part` is the type of what its content holds."""

    kind: str
    prefix: str
    id: str = ""
    pieces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.id = _id(self.prefix)

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self.pieces)

    def written(self, status: str) -> dict[str, Any]:
        """The item as it is now."""
        raise NotImplementedError


class ReasoningItem(OutputItem):
    """`sealed`: the reasoning is also in `encrypted_content`, for clients that send only that back."""

    def __init__(self, sealed: bool) -> None:
        super().__init__("reasoning", "rs_")
        self._sealed = sealed

    def part(self) -> dict[str, Any]:
        """Its one part."""
        return {"type": "reasoning_text", "text": self.text}

    def written(self, status: str) -> dict[str, Any]:
        """See `OutputItem`."""
        done = status != "in_progress"
        item: dict[str, Any] = {"type": "reasoning", "id": self.id, "status": status, "summary": []}
        item["content"] = [self.part()] if done else []
        if self._sealed:
            item["encrypted_content"] = seal(self.text) if done else ""
        return item


class MessageItem(OutputItem):
    """The answer."""

    def __init__(self) -> None:
        super().__init__("message", "msg_")

    def part(self) -> dict[str, Any]:
        """Its one part."""
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
        super().__init__("custom_tool_call" if offered.custom else "function_call", "fc_")
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
        item: dict[str, Any] = {"type": self.kind, "id": self.id, "call_id": self.call_id}
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

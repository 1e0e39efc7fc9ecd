"""A conversation as a client sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Conversation:
    """`messages` and `tools` of a chat request."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None

    @property
    def has_images(self) -> bool:
        """Whether a model without image encoder refuses it."""
        return any(
            part["type"] == "image_url"
            for message in self.messages
            if isinstance(message.get("content"), list)
            for part in message["content"]
        )

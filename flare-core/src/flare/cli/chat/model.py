"""What a server says of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flare.errors import RequestError


@dataclass(frozen=True)
class Model:
    """`context` in tokens, None where the server does not say; `chat` are its facts about chats, empty for
    servers that tell none."""

    name: str
    context: int | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Model:
        """From an entry of `/v1/models`. Raises LookupError, AttributeError for what is none."""
        context, chat = entry.get("max_model_len"), entry.get("chat")
        return cls(
            str(entry["id"]),
            context if isinstance(context, int) else None,
            chat if isinstance(chat, dict) else {},
        )

    def require(self, what: str) -> None:
        """Raises RequestError where the model is known not to take `what`: `images` or `tools`."""
        if self.chat.get(what) is False:
            raise RequestError(f"{self.name} takes no {what}", field=what)

    @property
    def efforts(self) -> list[str]:
        """Levels of effort that are known to differ; `none` where reasoning can be switched off."""
        levels = self.chat.get("efforts")
        off = ["none"] if self.chat.get("thinking_switch") is True else []
        return [*off, *map(str, levels if isinstance(levels, list) else [])]

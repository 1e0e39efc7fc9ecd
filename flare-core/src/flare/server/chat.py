"""Chat completions on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flare.server.choices import Choice, ScoredToken
from flare.server.formats import Format
from flare.server.logprobs import chat_logprobs
from flare.server.wire import json_bytes


class ChatFormat(Format):
    """https://platform.openai.com/docs/api-reference/chat: role, then content, then the finish reason."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def choice(self, text: str, choice: Choice) -> dict[str, Any]:
        """See `Format`."""
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def opening(self, choice: Choice) -> bytes | None:
        """See `Format`."""
        return b'"delta":{"role":"assistant","content":""}'

    def piece(self, text: str) -> bytes:
        """See `Format`."""
        return b'"delta":{"content":' + json_bytes(text) + b"}"

    def closing(self) -> bytes:
        """See `Format`."""
        return b'"delta":{}'

    def logprobs(self, scored: Sequence[ScoredToken], choice: Choice) -> msgspec.Raw:
        """See `Format`."""
        return chat_logprobs(scored, self._vocabulary)

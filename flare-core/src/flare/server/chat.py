"""Chat completions on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flare.server.choices import Choice, Delta, ScoredToken
from flare.server.formats import Format
from flare.server.logprobs import chat_logprobs
from flare.server.wire import json_bytes


class ChatFormat(Format):
    """https://platform.openai.com/docs/api-reference/chat: role, then content, then the finish reason."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def choice(self, delta: Delta, choice: Choice) -> dict[str, Any]:
        """See `Format`. Reasoning has a field of its own, the one that other servers have it in."""
        # https://api-docs.deepseek.com/guides/reasoning_model
        message = {"role": "assistant", "content": delta.text, "refusal": None}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        return {"message": message}

    def opening(self, choice: Choice) -> bytes | None:
        """See `Format`."""
        return b'"delta":{"role":"assistant","content":""}'

    def piece(self, text: str) -> bytes:
        """See `Format`."""
        return b'"delta":{"content":' + json_bytes(text) + b"}"

    def reasoning(self, text: str) -> bytes:
        """See `Format`."""
        return b'"delta":{"reasoning_content":' + json_bytes(text) + b"}"

    def closing(self) -> bytes:
        """See `Format`."""
        return b'"delta":{}'

    def logprobs(self, scored: Sequence[ScoredToken], choice: Choice) -> msgspec.Raw:
        """See `Format`."""
        return chat_logprobs(scored, self._vocabulary)

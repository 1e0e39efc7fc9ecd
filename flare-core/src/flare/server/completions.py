"""Text completions on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flare.server.choices import Choice, Delta, ScoredToken
from flare.server.formats import Format
from flare.server.logprobs import completion_logprobs
from flare.server.wire import json_bytes


class CompletionFormat(Format):
    """https://platform.openai.com/docs/api-reference/completions: an echoed prompt comes first."""

    object_name = "text_completion"
    chunk_object_name = "text_completion"

    def choice(self, delta: Delta, choice: Choice) -> dict[str, Any]:
        """See `Format`."""
        return {"text": choice.echo + delta.text}

    def opening(self, choice: Choice) -> bytes | None:
        """See `Format`."""
        return self.piece(choice.echo) if choice.echo else None

    def piece(self, text: str) -> bytes:
        """See `Format`."""
        return b'"text":' + json_bytes(text)

    def closing(self) -> bytes:
        """See `Format`."""
        return b'"text":""'

    def logprobs(self, scored: Sequence[ScoredToken], choice: Choice) -> msgspec.Raw:
        """See `Format`."""
        return completion_logprobs(scored, self._vocabulary, len(choice.echo))

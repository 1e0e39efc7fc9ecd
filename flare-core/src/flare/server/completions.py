"""Text completions on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flare.server.choices import Choice, ScoredToken
from flare.server.formats import CompletionsFormat
from flare.server.logprobs import completion_logprobs
from flare.server.outcome import Outcome
from flare.server.wire import json_bytes


class CompletionFormat(CompletionsFormat):
    """https://platform.openai.com/docs/api-reference/completions: an echoed prompt comes first."""

    object_name = "text_completion"
    chunk_object_name = "text_completion"

    def choice(self, outcome: Outcome, choice: Choice) -> dict[str, Any]:
        """See `CompletionsFormat`."""
        return {"text": choice.echo + outcome.answer}

    def opening(self, choice: Choice) -> bytes | None:
        """See `CompletionsFormat`."""
        return self.piece(choice.echo) if choice.echo else None

    def piece(self, text: str) -> bytes:
        """See `CompletionsFormat`."""
        return b'"text":' + json_bytes(text)

    def closing(self, choice: Choice) -> bytes:
        """See `CompletionsFormat`."""
        return b'"text":""'

    def logprobs(self, scored: Sequence[ScoredToken], choice: Choice) -> msgspec.Raw:
        """See `CompletionsFormat`."""
        return completion_logprobs(scored, self._vocabulary, len(choice.echo))

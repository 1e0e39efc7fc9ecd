"""Token counts of a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.server.choices import Choice


def usage_of(choices: Sequence[Choice]) -> dict[str, Any]:
    """The `usage` object, for what was drawn so far. A prompt with several choices is counted once; cached
    tokens are known when its first choice ended."""
    prompt = sum(choice.prompt_tokens for choice in choices if choice.first)
    output = sum(choice.output_tokens for choice in choices)
    cached = sum(choice.cached_tokens for choice in choices if choice.first)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": sum(c.reasoning_tokens for c in choices)},
    }

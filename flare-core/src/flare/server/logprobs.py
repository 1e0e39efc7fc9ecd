"""Log-probabilities in the two shapes of the OpenAI API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.frontend import TokenBytes
from flare.server.choices import ScoredToken

_IMPOSSIBLE = -9999.0  # how the OpenAI API writes the logarithm of zero, which JSON cannot


def chat_logprobs(scored: Sequence[ScoredToken], vocabulary: TokenBytes) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion."""
    return {
        "content": [
            {
                **_chat_entry(entry.token, entry.logprobs.logprob, vocabulary),
                "top_logprobs": [
                    _chat_entry(token, value, vocabulary) for token, value in entry.logprobs.top
                ],
            }
            for entry in scored
        ],
        "refusal": None,
    }


def completion_logprobs(
    scored: Sequence[ScoredToken], vocabulary: TokenBytes, text_start: int
) -> dict[str, Any]:
    """`choices[].logprobs` of a text completion; offsets count from `text_start` characters on. The drawn
    token is always among the alternatives."""
    return {
        "tokens": [vocabulary.label(entry.token) for entry in scored],
        "token_logprobs": [_finite(entry.logprobs.logprob) for entry in scored],
        "top_logprobs": [
            {
                vocabulary.label(token): _finite(value)
                for token, value in (*entry.logprobs.top, (entry.token, entry.logprobs.logprob))
            }
            for entry in scored
        ],
        "text_offset": [text_start + entry.offset for entry in scored],
    }


def _chat_entry(token: int, value: float, vocabulary: TokenBytes) -> dict[str, Any]:
    text, data = vocabulary[token]
    return {"token": text, "logprob": _finite(value), "bytes": list(data)}


def _finite(value: float) -> float:
    return max(value, _IMPOSSIBLE)

"""Log-probabilities in the two shapes of the OpenAI API.

Written token by token, as JSON that is put into the response as it is: encoding the 20 alternatives of every
token of a long output in one call would keep all other threads waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from flare.frontend import TokenBytes
from flare.server.choices import ScoredToken
from flare.server.wire import json_bytes

_IMPOSSIBLE = -9999.0  # how the OpenAI API writes the logarithm of zero, which JSON cannot


def chat_logprobs(scored: Sequence[ScoredToken], vocabulary: TokenBytes) -> msgspec.Raw:
    """`choices[].logprobs` of a chat completion."""
    content = _list(
        {
            **_chat_entry(entry.token, entry.logprobs.logprob, vocabulary),
            "top_logprobs": [_chat_entry(token, value, vocabulary) for token, value in entry.logprobs.top],
        }
        for entry in scored
    )
    return msgspec.Raw(b'{"content":' + content + b',"refusal":null}')


def completion_logprobs(
    scored: Sequence[ScoredToken], vocabulary: TokenBytes, text_start: int
) -> msgspec.Raw:
    """`choices[].logprobs` of a text completion; offsets count from `text_start` characters on. The drawn
    token is always among the alternatives."""
    parts = (
        b'{"tokens":',
        _list(vocabulary.label(entry.token) for entry in scored),
        b',"token_logprobs":',
        _list(_finite(entry.logprobs.logprob) for entry in scored),
        b',"top_logprobs":',
        _list(
            {
                vocabulary.label(token): _finite(value)
                for token, value in (*entry.logprobs.top, (entry.token, entry.logprobs.logprob))
            }
            for entry in scored
        ),
        b',"text_offset":',
        _list(text_start + entry.offset for entry in scored),
        b"}",
    )
    return msgspec.Raw(b"".join(parts))


def _list(values: Iterable[Any]) -> bytes:
    return b"[" + b",".join(map(json_bytes, values)) + b"]"


def _chat_entry(token: int, value: float, vocabulary: TokenBytes) -> dict[str, Any]:
    text, data = vocabulary[token]
    return {"token": text, "logprob": _finite(value), "bytes": list(data)}


def _finite(value: float) -> float:
    return max(value, _IMPOSSIBLE)

"""`/tokenize` and `/detokenize`, in vLLM's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.errors import RequestError
from flare.server.body import parse_body
from flare.server.jobs import JobFactory
from flare.server.requests import DetokenizeRequest, TokenizeRequest
from flare.server.unserved import refuse_unserved
from flare.server.wire import json_bytes

_ENCODED_AT_ONCE = 4096  # list entries


class TokenRoutes:
    """Bodies in, bodies out. CPU-heavy: runs on preparation threads."""

    def __init__(self, jobs: JobFactory) -> None:
        self._jobs = jobs

    def tokenize(self, body: bytes | bytearray, context: int | None) -> bytes:
        """`{"count", "max_model_len", "tokens", "token_strs"}`. Raises RequestError, HTTPError."""
        request = parse_body(TokenizeRequest, body)
        self._jobs.check_model(request.model)
        refuse_unserved(request.model_extra or {}, 1)
        tokens = self._tokens(request)
        pieces = b"null"
        if request.return_token_strs:
            piece = self._jobs.tokenizer.piece
            pieces = _list([piece(token) or "" for token in tokens])
        return b'{"count":%d,"max_model_len":%s,"tokens":%s,"token_strs":%s}' % (
            len(tokens),
            json_bytes(context),
            _list(tokens),
            pieces,
        )

    def detokenize(self, body: bytes | bytearray, context: int | None) -> bytes:
        """`{"prompt"}`, with the text of special tokens. Raises RequestError, HTTPError."""
        request = parse_body(DetokenizeRequest, body)
        self._jobs.check_model(request.model)
        refuse_unserved(request.model_extra or {}, 1)
        self._jobs.prompts.check_tokens(request.tokens, "tokens")
        text = self._jobs.tokenizer.decode(request.tokens, skip_special=False)
        return json_bytes({"prompt": text})

    def _tokens(self, request: TokenizeRequest) -> list[int]:
        tokenizer = self._jobs.tokenizer
        if (request.prompt is None) == (request.messages is None):
            raise RequestError("give either prompt or messages", field="prompt")
        if request.prompt is not None:
            add_special = request.add_special_tokens is not False
            return (
                tokenizer.encode_prompt(request.prompt) if add_special else tokenizer.encode(request.prompt)
            )
        assert request.messages is not None
        text = self._jobs.prompts.render(
            request.messages,
            request.add_generation_prompt is not False,
            request.chat_template_kwargs,
            request.tools,
        )
        return tokenizer.encode_prompt(text) if request.add_special_tokens else tokenizer.encode(text)


def _list(values: Sequence[Any]) -> bytes:
    """A JSON list, encoded in pieces so that other threads run in between."""
    pieces = (
        json_bytes(values[start : start + _ENCODED_AT_ONCE])[1:-1]
        for start in range(0, len(values), _ENCODED_AT_ONCE)
    )
    return b"[" + b",".join(pieces) + b"]"

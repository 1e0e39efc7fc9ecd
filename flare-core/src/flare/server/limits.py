"""How much output a request may have."""

from __future__ import annotations

from flare.errors import RequestError
from flare.frontend import ContextLengthError
from flare.server.requests import CompletionRequest, GenerationRequest


def output_limit(request: GenerationRequest, prompt: int, context: int, fits: bool = False) -> int:
    """`max_tokens`, or what a prompt of `prompt` tokens leaves of a context of `context` tokens; with `fits`
    the smaller of them.

    Raises ContextLengthError with the numbers, RequestError when `min_tokens` is above the limit.
    """
    asked, room = request.max_tokens, context - prompt
    if fits and asked is not None and asked > room > 0:
        asked = room
    where = "prompt" if isinstance(request, CompletionRequest) else "messages"
    if asked is None and room <= 0:
        raise ContextLengthError(
            f"the context length is {context} tokens; the prompt has {prompt} and leaves no room for output",
            field=where,
        )
    if asked is not None and asked > room:
        raise ContextLengthError(
            f"the context length is {context} tokens; the prompt has {prompt} and {asked} of output were "
            f"requested, {prompt + asked} in total",
            field="max_tokens" if room > 0 else where,
        )
    limit = room if asked is None else asked
    if (request.min_tokens or 0) > limit:
        raise RequestError(
            f"min_tokens {request.min_tokens} is above the output limit of {limit} tokens", field="min_tokens"
        )
    return limit

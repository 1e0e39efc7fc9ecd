"""How much output a request may have."""

from __future__ import annotations

from flare.errors import RequestError
from flare.frontend import ContextLengthError
from flare.server.requests import GenerationRequest


def output_limit(
    request: GenerationRequest, prompt: int, context: int, where: str, fits: bool = False
) -> int:
    """`max_tokens`, or what a prompt of `prompt` tokens, in the field `where`, leaves of `context` tokens;
    with `fits` the smaller of them.

    Raises ContextLengthError with the numbers, RequestError when `min_tokens` is above the limit.
    """
    asked, room = request.max_tokens, context - prompt
    if fits and asked is not None and asked > room > 0:
        asked = room
    if room < 0 or (room == 0 and (asked is None or fits)):
        raise ContextLengthError.of_prompt(prompt, context, where)
    if asked is not None and asked > room:
        raise ContextLengthError(
            f"the context length is {context} tokens; the prompt has {prompt} and {asked} of output were "
            f"requested, {prompt + asked} in total",
            field="max_tokens",
        )
    limit = room if asked is None else asked
    if (request.min_tokens or 0) > limit:
        raise RequestError(
            f"min_tokens {request.min_tokens} is above the output limit of {limit} tokens", field="min_tokens"
        )
    return limit

"""A Responses request as a turn of a chat."""

from __future__ import annotations

from dataclasses import dataclass

from flare.errors import RequestError
from flare.frontend import UnsupportedError
from flare.server.requests import GenerationRequest
from flare.server.responses.body import ResponsesRequest
from flare.server.responses.items import chat_messages
from flare.server.responses.offer import Offer, read_offer
from flare.server.structured import flat_format
from flare.server.tools import strict_tools
from flare.server.turn import Turn

_STATEFUL = ("previous_response_id", "conversation", "prompt", "background")
SEALED_REASONING = "reasoning.encrypted_content"
_SCORED = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesTurn(Turn):
    """A turn, and what its response repeats of the request."""

    body: ResponsesRequest
    offer: Offer


def responses_turn(body: ResponsesRequest) -> ResponsesTurn:
    """Raises RequestError, and UnsupportedError for what needs stored state."""
    for name in _STATEFUL:
        if getattr(body, name):
            raise UnsupportedError(
                f"{name} is not supported: this server stores no responses; send the whole input", field=name
            )
    if _SCORED in (body.include or ()):
        raise UnsupportedError(f"include: {_SCORED} is not supported by this server", field="include")
    if isinstance(body.input, list) and not body.input:
        raise RequestError("input must not be empty", field="input")
    offer = read_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    messages, left_out = chat_messages(body.input, body.instructions)
    ignored = [*(body.model_extra or {})]
    ignored += [f"tools of type {kind}" for kind in offer.left_out]
    ignored += [f"input of type {kind}" for kind in left_out]
    ignored += strict_tools(body.tools)
    if body.store:
        ignored.append("store")
    if body.truncation not in (None, "disabled"):
        ignored.append("truncation")
    return ResponsesTurn(
        id_prefix="resp_",
        request=GenerationRequest(
            model=body.model,
            stream=body.stream,
            max_tokens=body.max_output_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            presence_penalty=body.presence_penalty,
            frequency_penalty=body.frequency_penalty,
            response_format=flat_format(body.text.format if body.text is not None else None),
        ),
        messages=messages,
        tools=offer.tools,
        effort=body.reasoning.effort if body.reasoning is not None else None,
        limit_fits=True,
        prompt_field="input",
        form_field="text.format",
        session=body.prompt_cache_key,
        ignored=ignored,
        body=body,
        offer=offer,
    )

"""A turn of a conversation: what requests of every chat protocol are brought to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flare.server.requests import GenerationRequest
from flare.server.tools import NO_TOOLS, Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`messages` are in the shape of chat completions, and `request` has everything about sampling and
    limits. `variables` are more of the template's, `effort` is how much to reason, None where that is open.
    `logprobs` is the number of alternatives per token, None without log-probabilities. `limit_fits`: an
    output limit above what the context leaves is lowered to it. `session` is the client's name of its
    conversation; `prompt_field` and `form_field` are where it has the prompt and the format of the answer.
    `ignored` names what of the body has no meaning here. `id_prefix` begins the response's id."""

    id_prefix: str
    request: GenerationRequest
    messages: Sequence[Any]
    tools: Tools = NO_TOOLS
    variables: Mapping[str, Any] | None = None
    logprobs: int | None = None
    limit_fits: bool = False
    effort: str | None = None
    session: str | None = None
    prompt_field: str = "messages"
    form_field: str = "response_format"
    ignored: list[str] = field(default_factory=list)

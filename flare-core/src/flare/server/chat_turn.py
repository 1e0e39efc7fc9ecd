"""A chat completions request as a turn."""

from __future__ import annotations

from flare.errors import RequestError
from flare.server.requests import ChatRequest
from flare.server.tools import read_tools, strict_tools
from flare.server.turn import Turn


def chat_turn(request: ChatRequest, ignored: list[str]) -> Turn:
    """Raises RequestError naming the field at fault."""
    if request.top_logprobs and not request.logprobs:
        raise RequestError("top_logprobs needs logprobs: true", field="top_logprobs")
    if request.max_completion_tokens is not None:
        request.max_tokens = request.max_completion_tokens
    return Turn(
        id_prefix="chatcmpl-",
        request=request,
        messages=request.messages,
        tools=read_tools(request.tools, request.tool_choice, request.parallel_tool_calls),
        variables=request.chat_template_kwargs,
        effort=request.reasoning_effort,
        session=request.prompt_cache_key,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        ignored=ignored + strict_tools(request.tools),
    )

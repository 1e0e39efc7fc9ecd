"""The response object: what was asked, and what became of it."""

from __future__ import annotations

import time
from typing import Any

from flare.server.choices import Choice
from flare.server.jobs import Job
from flare.server.responses.body import ResponsesRequest
from flare.server.responses.offer import repeated_tool


def response_object(
    job: Job,
    model: str,
    created: int,
    body: ResponsesRequest,
    *,
    status: str,
    output: list[dict[str, Any]],
    choice: Choice | None = None,
    error: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """https://platform.openai.com/docs/api-reference/responses/object, with every field that the standard's
    schema demands. `choice` is the one that ended: its token counts become the usage."""
    reasoning = body.reasoning
    return {
        "id": job.id,
        "object": "response",
        "created_at": created,
        "completed_at": int(time.time()) if status == "completed" else None,
        "status": status,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": body.instructions,
        "model": model,
        "output": output,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {
            "effort": reasoning.effort if reasoning else None,
            "summary": reasoning.summary if reasoning else None,
        },
        "store": False,
        "background": False,
        "temperature": job.sampling.temperature,
        "top_p": job.sampling.top_p,
        "presence_penalty": job.sampling.presence_penalty,
        "frequency_penalty": job.sampling.frequency_penalty,
        "top_logprobs": 0,
        "text": {"format": _format(body.text.format if body.text is not None else None)},
        "tool_choice": body.tool_choice if body.tool_choice is not None else "auto",
        "tools": [repeated_tool(tool) for tool in body.tools or ()],
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "truncation": "disabled",
        "service_tier": "default",
        "metadata": body.metadata or {},
        "user": body.user,
        "safety_identifier": body.safety_identifier,
        "prompt_cache_key": body.prompt_cache_key,
        "usage": None if choice is None else _usage(choice),
    }


def _format(asked: dict[str, Any] | None) -> dict[str, Any]:
    if asked is None:
        return {"type": "text"}
    if asked.get("type") != "json_schema":
        return asked
    return {**asked, "description": asked.get("description"), "strict": bool(asked.get("strict"))}


def _usage(choice: Choice) -> dict[str, Any]:
    return {
        "input_tokens": choice.prompt_tokens,
        "input_tokens_details": {"cached_tokens": choice.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": choice.output_tokens,
        "output_tokens_details": {"reasoning_tokens": choice.reasoning_tokens},
        "total_tokens": choice.prompt_tokens + choice.output_tokens,
    }

"""Request bodies: bounded, JSON, validated."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from flare.errors import RequestError
from flare.server.errors import HTTPError
from flare.server.requests import GenerationRequest

R = TypeVar("R", bound=GenerationRequest)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises HTTPError: 415 unless it is declared as JSON (so that a web page cannot send it
    to a local server without asking), 413 beyond `limit` bytes."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HTTPError(
            415, f"content-type must be application/json, got {kind!r}", code="unsupported_media_type"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def parse_body(model: type[R], body: bytes) -> R:
    """`body` as `model`. Raises RequestError with one message, naming the first parameter at fault."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise _refusal(details[0]) from None


def _refusal(detail: ErrorDetails) -> RequestError:
    message = detail["msg"]
    if detail["type"] == "json_invalid":
        return RequestError(f"the body is not valid JSON: {message.removeprefix('Invalid JSON: ')}")
    param = ""
    for part in detail["loc"]:
        param += f"[{part}]" if isinstance(part, int) else f".{part}" if param else part
    if not param:
        return RequestError(f"the body must be a JSON object: {message}")
    return RequestError(f"{param}: {message}", field=param)


def _too_large(limit: int) -> HTTPError:
    return HTTPError(413, f"the body is larger than {limit} bytes", code="body_too_large")

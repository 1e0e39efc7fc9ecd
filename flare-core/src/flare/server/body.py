"""Request bodies: bounded, JSON, validated."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import jiter
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from flare.errors import RequestError
from flare.frontend.json_size import json_weight
from flare.server.errors import HTTPError
from flare.server.settings import ServerSettings

R = TypeVar("R", bound=BaseModel)

_MOST_WEIGHT = 500_000  # about 20 ms of parsing; some 25,000 messages, or half a million token ids


async def read_body(request: Request, settings: ServerSettings) -> bytearray:
    """The whole body. Raises HTTPError: 415 unless it is declared as plain JSON (so that a web page cannot
    send it to a local server without asking), 413 when it is too large, 408 when it does not arrive in time.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise _unsupported(f"content-type must be application/json, got {kind[:100]!r}")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise _unsupported(f"content-encoding {coding[:100]!r} is not taken; send the body as it is")
    limit = settings.max_body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.io_timeout):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        message = f"the body did not arrive within {settings.io_timeout:g} s"
        raise HTTPError(408, message, code="request_timeout") from None
    return body


def parse_body(model: type[R], body: bytes | bytearray) -> R:
    """`body` as `model`. Raises RequestError with one message, naming the first parameter at fault."""
    body = bytes(body)  # here, on a thread: copying megabytes takes milliseconds
    if json_weight(body, _MOST_WEIGHT) > _MOST_WEIGHT:
        raise RequestError("the body has too many values: arrays, objects and elements in total")
    try:
        document = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    try:
        return model.model_validate(document)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise _refusal(details[0]) from None


def _refusal(detail: ErrorDetails) -> RequestError:
    message = detail["msg"]
    param = ""
    for part in detail["loc"]:
        param += f"[{part}]" if isinstance(part, int) else f".{part[:64]}" if param else part
    if not param:
        return RequestError(f"the body must be a JSON object: {message}")
    return RequestError(f"{param}: {message}", field=param)


def _unsupported(message: str) -> HTTPError:
    return HTTPError(415, message, code="unsupported_media_type")


def _too_large(limit: int) -> HTTPError:
    return HTTPError(413, f"the body is larger than {limit} bytes", code="body_too_large")

"""Errors in the shape of the OpenAI API (https://platform.openai.com/docs/guides/error-codes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Scope

from flare.errors import ExecutionError, FlareError, RequestError, UnavailableError
from flare.server.wire import json_bytes

if TYPE_CHECKING:
    from flare.server.record import RequestRecord

RETRY_AFTER_SECONDS = 1
_CLOSING = (400, 408)  # a connection whose framing or pace cannot be trusted is not kept


class HTTPError(FlareError):
    """A refusal with an HTTP status of its own."""

    def __init__(self, status: int, message: str, *, code: str, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.status = status
        self.code = code


def status_of(error: Exception) -> int:
    """HTTP status of an error that was met before the response started."""
    if isinstance(error, HTTPError):
        return error.status
    if isinstance(error, RequestError):
        return 400
    if isinstance(error, UnavailableError):
        return 503
    return 500


def public_error(error: Exception) -> FlareError:
    """What a client may see of `error`: bugs are not spelled out."""
    return error if isinstance(error, FlareError) else ExecutionError("internal error; see the server's log")


def error_body(error: Exception) -> dict[str, Any]:
    """`{"error": {"message", "type", "param", "code"}}`."""
    shown = public_error(error)
    status = status_of(shown)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": str(shown), "type": kind, "param": shown.field, "code": shown.code}}


def error_event(error: Exception) -> bytes:
    """The last event of a stream that failed after its headers were sent."""
    return b"data: " + json_bytes(error_body(error)) + b"\n\n"


def error_headers(error: Exception) -> dict[str, str]:
    """Headers that belong to the status: when to come again, and whether the connection ends."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, HTTPError) and status in _CLOSING:
        headers["connection"] = "close"
    return headers


def refuse(scope: Scope, error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    """The whole response for `error`, which the request's record keeps."""
    record: RequestRecord = scope["state"]["record"]
    record.fail(public_error(error))
    return Response(
        json_bytes(error_body(error)),
        status_of(error),
        {**error_headers(error), **(headers or {})},
        "application/json",
    )

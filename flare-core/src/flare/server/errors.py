"""Errors in the shape of the OpenAI API (https://platform.openai.com/docs/guides/error-codes)."""

from __future__ import annotations

from typing import Any

from flare.errors import ExecutionError, FlareError, RequestError, UnavailableError
from flare.server.wire import json_bytes

RETRY_AFTER_SECONDS = 1


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


def log_text(error: Exception) -> str:
    """`error` on one bounded line: messages may quote what a client sent."""
    return " ".join(str(error).split())[:500]


def error_body(error: Exception) -> dict[str, Any]:
    """`{"error": {"message", "type", "param", "code"}}`."""
    shown = public_error(error)
    status = status_of(shown)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": str(shown), "type": kind, "param": shown.field, "code": shown.code}}


def error_event(error: Exception) -> bytes:
    """The last event of a stream that failed after its headers were sent."""
    return b"data: " + json_bytes(error_body(error)) + b"\n\n"

"""Errors in the envelope of the Messages protocol (https://docs.claude.com/en/api/errors)."""

from __future__ import annotations

from typing import Any

from flare.frontend import UnsupportedError
from flare.server.errors import public_error, status_of
from flare.server.wire import named_event

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ThreadError(UnsupportedError):
    """The conversation would have to be kept here. Clients know this code, and go on by sending all of it."""

    code = "thread_unsupported_request"


def messages_error(error: Exception, request_id: str) -> dict[str, Any]:
    """`{"type": "error", "error": {"type", "message", "param", "code"}, "request_id"}`; the protocol has
    neither `param` nor `code`, which the other endpoints have and clients may read here too."""
    shown = public_error(error)
    status = status_of(shown)
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    detail: dict[str, Any] = {
        "type": kind,
        "message": str(shown),
        "param": shown.field,
        "code": shown.code,
    }
    if isinstance(shown, ThreadError):
        detail["details"] = {"error_code": shown.code, "unsupported": ["thread"]}
    return {"type": "error", "error": detail, "request_id": request_id}


def messages_error_event(error: Exception, request_id: str) -> bytes:
    """The last event of a stream that failed."""
    return named_event("error", messages_error(error, request_id))

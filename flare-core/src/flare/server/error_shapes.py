"""Errors on the wire: in the shape of the OpenAI API, and in that of the Messages protocol on its paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Scope

from flare.server.errors import error_headers, public_error, status_of
from flare.server.messages.errors import messages_error
from flare.server.record import RequestRecord
from flare.server.wire import json_bytes

_MESSAGES = "/v1/messages"


def error_body(error: Exception) -> dict[str, Any]:
    """`{"error": {"message", "type", "param", "code"}}`
    (https://platform.openai.com/docs/guides/error-codes)."""
    shown = public_error(error)
    kind = "invalid_request_error" if status_of(shown) < 500 else "server_error"
    return {"error": {"message": str(shown), "type": kind, "param": shown.field, "code": shown.code}}


def error_event(error: Exception) -> bytes:
    """The last event of a stream that failed after its headers were sent."""
    return b"data: " + json_bytes(error_body(error)) + b"\n\n"


def refusal_body(record: RequestRecord, error: Exception) -> bytes:
    """The body of an answer that is an error."""
    if record.path == _MESSAGES or record.path.startswith(_MESSAGES + "/"):
        return json_bytes(messages_error(error, record.id))
    return json_bytes(error_body(error))


def refuse(scope: Scope, error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    """The whole response for `error`, which the request's record keeps."""
    record: RequestRecord = scope["state"]["record"]
    record.fail(public_error(error))
    return Response(
        refusal_body(record, error),
        status_of(error),
        {**error_headers(error), **(headers or {})},
        "application/json",
    )

"""Errors and their HTTP statuses; `error_shapes` writes them."""

from __future__ import annotations

from flare.errors import ExecutionError, FlareError, RequestError, UnavailableError

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


def error_headers(error: Exception) -> dict[str, str]:
    """Headers that belong to the status: when to come again, and whether the connection ends."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, HTTPError) and status in _CLOSING:
        headers["connection"] = "close"
    return headers

"""Failures behind a request: into its record, and bugs with their traceback into the log."""

from __future__ import annotations

import logging

from flare.errors import FlareError
from flare.server.errors import public_error, status_of
from flare.server.record import RequestRecord

logger = logging.getLogger("flare.server")


def note_failure(record: RequestRecord, error: Exception) -> None:
    """The request of `record` ends with `error`. What the client did wrong is in the request's own line and
    its answer; here the server's side is logged: typed errors on one line, bugs with their traceback."""
    record.fail(public_error(error))
    if not isinstance(error, FlareError):
        logger.error("request %s: internal error", record.id, exc_info=error)
    elif (status := status_of(error)) >= 500:
        level = logging.ERROR if status == 500 else logging.WARNING
        logger.log(level, "request %s: %s: %s", record.id, error.code, " ".join(str(error).split())[:500])

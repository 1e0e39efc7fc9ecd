"""Told once about every request, however it ended: writes its line, counts it."""

from __future__ import annotations

import logging
from time import monotonic

from flare.server.logs import logfmt
from flare.server.meter import Meter
from flare.server.record import RequestRecord

logger = logging.getLogger("flare.request")

# Asked for again and again by what watches over the server, the page among it: lines that bury the others.
_WATCHED = frozenset({"/health", "/ready", "/metrics", "/page/{name}"})


class Observer:
    """One per app, used on its event loop."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def arrived(self) -> None:
        """A request reached the app."""
        self._meter.arrived()

    def ended(self, record: RequestRecord) -> None:
        """A request that reached the app is over."""
        self._meter.ended(record)
        _write(record)

    def refused(self, record: RequestRecord) -> None:
        """A request, or a connection, that never reached the app is over."""
        self._meter.refused(record)
        _write(record)


def _write(record: RequestRecord) -> None:
    if record.status >= 500:
        level = logging.WARNING
    else:
        level = logging.DEBUG if record.route in _WATCHED and 0 < record.status < 400 else logging.INFO
    if logger.isEnabledFor(level):
        fields = record.fields(monotonic())
        logger.log(level, logfmt(fields), extra={"fields": fields})

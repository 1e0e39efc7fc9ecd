"""Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream."""

from __future__ import annotations


class EventParser:
    """Cuts a stream of bytes into the `data` of its events. Lines end in LF or CRLF."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Data of the events that `chunk` completes; events without data and comments give nothing."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events: list[bytes] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
        return events

"""Stop strings: found however the text is cut into pieces, never shown, not even in part."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Finds the first stop string in a stream of text.

    Text that may be the beginning of a stop string is held until it is not. Of several stop strings the one
    that is complete first wins; of those complete at the same character, the longest. So every way to cut
    the text into pieces gives the same result as one character at a time.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "a stop string is not empty"
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Text that may be shown now. After a match (`matched` is set): the text before it, then nothing."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        buffer = self._held + text
        ends = [(start + len(stop), start, stop) for stop in self._stops if (start := buffer.find(stop)) >= 0]
        if ends:
            _, start, self.matched = min(ends)
            self._held = ""
            return buffer[:start]
        keep = self._possible_start(buffer)
        self._held = buffer[keep:]
        return buffer[:keep]

    def flush(self) -> str:
        """The held text, at the end of the output."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, buffer: str) -> int:
        """Index of the longest tail of `buffer` that begins a stop string."""
        for start in range(max(0, len(buffer) - self._longest + 1), len(buffer)):
            tail = buffer[start:]
            if any(stop.startswith(tail) for stop in self._stops):
                return start
        return len(buffer)

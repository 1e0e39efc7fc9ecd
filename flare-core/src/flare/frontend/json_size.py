"""How much a JSON document costs to parse, estimated before it is parsed."""

from __future__ import annotations

_BACKSLASH = 0x5C
_SLICE = 1 << 20


def json_weight(body: bytes, enough: int) -> int:
    """A weight in proportion to the time that parsing takes besides copying strings: 8 for an array,
    an object or a name, 1 for an element (about 40 ns each). Stops counting above `enough`.

    The parser keeps every other thread waiting while it runs, the event loop among them, and a few megabytes
    of `[],[],[],` take seconds. Counting goes in steps that let others run.
    """
    # Commas in strings count too at first: that is quick, and prompts are rarely that long.
    rough = _weigh(body, 0, len(body), enough)
    if rough <= enough:
        return rough
    weight = position = 0
    while weight <= enough:
        start = body.find(b'"', position)
        if start < 0:
            return weight + _weigh(body, position, len(body), enough)
        weight += _weigh(body, position, start, enough)
        end = _string_end(body, start + 1)
        if end < 0:
            return weight
        position = end + 1
    return weight


def _weigh(body: bytes, start: int, end: int, enough: int) -> int:
    weight = 0
    for begin in range(start, end, _SLICE):
        stop = min(begin + _SLICE, end)
        weight += 8 * sum(body.count(mark, begin, stop) for mark in (b"[", b"{", b":"))
        weight += body.count(b",", begin, stop)
        if weight > enough:
            break
    return weight


def _string_end(body: bytes, start: int) -> int:
    """Index of the quote that ends the string whose text begins at `start`; -1 when none does."""
    position = start
    while (quote := body.find(b'"', position)) >= 0:
        escapes = quote
        while escapes > start and body[escapes - 1] == _BACKSLASH:
            escapes -= 1
        if (quote - escapes) % 2 == 0:
            return quote
        position = quote + 1
    return -1

"""JSON as it goes over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()

_LINE_BREAKS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)


def named_event(kind: str, fields: Mapping[str, Any]) -> bytes:
    """A server-sent event with a name, which its data repeats as `type`."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), json_bytes({"type": kind, **fields}))


def json_bytes(value: Any) -> bytes:
    """Compact UTF-8 JSON. Line separators outside ASCII are escaped: some clients cut event streams with a
    Unicode `splitlines`."""
    data = _encoder.encode(value)
    if data.isascii():
        return data
    for character, escape in _LINE_BREAKS:
        if character in data:
            data = data.replace(character, escape)
    return data

"""Settings of the HTTP server."""

from __future__ import annotations

from dataclasses import dataclass

from flare.frontend import ZeroTemperature


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """`zero_temperature`: refuse temperature 0, or map it to the smallest allowed. `max_body_bytes` bounds a
    request body. `preparation_threads` tokenize at the same time."""

    zero_temperature: ZeroTemperature = "reject"
    max_body_bytes: int = 32 << 20
    preparation_threads: int = 2

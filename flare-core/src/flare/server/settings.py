"""Settings of the HTTP server."""

from __future__ import annotations

from dataclasses import dataclass, field

from flare.errors import FlareError
from flare.frontend import ZeroTemperature
from flare.server.keys import ApiKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What an operator may choose.

    `zero_temperature`: refuse temperature 0, or map it to the smallest allowed. `max_body_bytes` bounds a
    request body. `preparation_threads` tokenize at the same time; bodies of `bulk_body_bytes` or more have a
    thread of their own, so that they delay no small one.

    `api_keys`: one of them opens `/v1`; none leaves it open. `cors_origins`: web origins that browsers may
    call from, `*` for all.

    Seconds: `request_timeout` for a whole request (None: no limit), `io_timeout` for the headers to arrive,
    for the body to arrive, and for a client that stopped reading. `max_connections` open at once, one more
    is refused; `max_header_bytes` bounds a request's line and headers. A stream in which nothing came for
    `stream_keep_alive` seconds shows that it lives.

    `max_image_bytes` and `max_image_pixels` bound an image in a request, encoded and decoded.
    `allowed_media_domains`: hosts that images may be fetched from; see `AllowedDomains`. An image must arrive
    within `media_timeout` seconds; `media_fetches` are fetched at the same time.
    `debug_endpoints`: serve `/debug/cache`.
    """

    zero_temperature: ZeroTemperature = "reject"
    max_body_bytes: int = 32 << 20
    bulk_body_bytes: int = 256 << 10
    preparation_threads: int = 2
    api_keys: ApiKeys = field(default_factory=ApiKeys)
    cors_origins: tuple[str, ...] = ()
    request_timeout: float | None = None
    io_timeout: float = 60.0
    stream_keep_alive: float = 10.0
    max_connections: int = 512
    max_header_bytes: int = 32 << 10
    debug_endpoints: bool = False
    max_image_bytes: int = 20 << 20
    max_image_pixels: int = 64 << 20
    allowed_media_domains: tuple[str, ...] = ()
    media_timeout: float = 10.0
    media_fetches: int = 8

    def __post_init__(self) -> None:
        for name in (
            "max_body_bytes",
            "preparation_threads",
            "io_timeout",
            "stream_keep_alive",
            "max_connections",
            "max_image_bytes",
            "max_image_pixels",
            "media_timeout",
            "media_fetches",
        ):
            if not getattr(self, name) > 0:
                raise FlareError(f"{name} must be above 0, got {getattr(self, name)}", field=name)
        if self.request_timeout is not None and not self.request_timeout > 0:
            raise FlareError(
                f"request_timeout must be above 0, got {self.request_timeout}", field="request_timeout"
            )

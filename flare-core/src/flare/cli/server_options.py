"""Options of `flare run` about the HTTP server, each with an environment variable."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flare.server import ServerSettings

_MIB = 1 << 20


class ZeroTemperature(StrEnum):
    """What a request with temperature 0 gets."""

    REJECT = "reject"
    CLAMP = "clamp"


class LogFormat(StrEnum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """What is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


ZeroTemperatureOption = Annotated[
    ZeroTemperature, typer.Option(help="Temperature 0: refuse, or take the smallest allowed temperature.")
]
ApiKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        envvar="FLARE_API_KEY",
        show_envvar=True,
        help="Key that /v1 asks for; may be repeated. Others see command lines: prefer the file.",
    ),
]
ApiKeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file", envvar="FLARE_API_KEY_FILE", help="File with one API key per line, # for comments."
    ),
]
CorsOriginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        envvar="FLARE_CORS_ORIGIN",
        help="Web origin whose pages may call this server, * for all; may be repeated.",
    ),
]
MediaDomainsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-media-domains",
        metavar="HOST[:PORT]",
        envvar="FLARE_ALLOWED_MEDIA_DOMAINS",
        help="Host that images in chats may be fetched from, *.HOST for those below, * for every public one; "
        "may be repeated.",
        show_default="none: images are data: addresses",
    ),
]
MaxBodyOption = Annotated[
    int,
    typer.Option("--max-body-mib", min=1, envvar="FLARE_MAX_BODY_MIB", help="Largest request body in MiB."),
]
MaxConnectionsOption = Annotated[
    int,
    typer.Option(
        "--max-connections",
        min=1,
        envvar="FLARE_MAX_CONNECTIONS",
        help="Open connections; one more gets 503.",
    ),
]
RequestTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--request-timeout",
        min=0.001,
        envvar="FLARE_REQUEST_TIMEOUT",
        help="Seconds that a request may take in all.",
        show_default="no limit",
    ),
]
IoTimeoutOption = Annotated[
    float,
    typer.Option(
        "--io-timeout",
        min=0.001,
        envvar="FLARE_IO_TIMEOUT",
        help="Seconds for a client to send a request's head, then its body, or to go on reading.",
    ),
]
StreamKeepAliveOption = Annotated[
    float,
    typer.Option(
        "--stream-keep-alive",
        min=0.001,
        envvar="FLARE_STREAM_KEEP_ALIVE",
        help="Seconds of silence in a stream after which it shows that it lives.",
    ),
]
DebugEndpointsOption = Annotated[
    bool,
    typer.Option(
        "--debug-endpoints",
        envvar="FLARE_DEBUG_ENDPOINTS",
        help="Serve /debug/cache and /debug/steps to whoever can connect.",
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="FLARE_LOG_FORMAT", help="Log lines for people or as JSON."),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level", envvar="FLARE_LOG_LEVEL", help="Least important lines to log; info has every request."
    ),
]


def server_settings(
    zero_temperature: ZeroTemperature,
    api_keys: list[str] | None,
    api_key_file: Path | None,
    cors_origins: list[str] | None,
    media_domains: list[str] | None,
    max_body_mib: int,
    max_connections: int,
    request_timeout: float | None,
    io_timeout: float,
    stream_keep_alive: float,
    debug_endpoints: bool,
) -> ServerSettings:
    """The options as settings. Raises FlareError for unusable keys, OSError for an unreadable key file."""
    from flare.server.keys import ApiKeys, read_key_file
    from flare.server.settings import ServerSettings

    keys = list(api_keys or ())
    if api_key_file is not None:
        keys += read_key_file(api_key_file)
    return ServerSettings(
        zero_temperature=zero_temperature.value,
        max_body_bytes=max_body_mib * _MIB,
        api_keys=ApiKeys(keys),
        cors_origins=tuple(cors_origins or ()),
        allowed_media_domains=tuple(media_domains or ()),
        request_timeout=request_timeout,
        io_timeout=io_timeout,
        stream_keep_alive=stream_keep_alive,
        max_connections=max_connections,
        debug_endpoints=debug_endpoints,
    )

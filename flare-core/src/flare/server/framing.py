"""Request heads that the parser takes and nobody should: what proxies and servers may read differently."""

from __future__ import annotations

import ipaddress
import re

from starlette.types import Scope

from flare.server.errors import HTTPError

_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|[A-Za-z0-9._~-]*)(?::[0-9]{0,5})?")


def check_framing(scope: Scope) -> None:
    """Raises HTTPError 400 for a body framed in two ways (RFC 9112, 6.1) and for a host that is none."""
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise _malformed("content-length and transfer-encoding exclude each other")
    for name, value in scope["headers"]:
        if name == b"host" and not _is_host(value):
            raise _malformed("the host header is not a host")


def _is_host(value: bytes) -> bool:
    match = _HOST.fullmatch(value)
    if match is None:
        return False
    if match[1] is None:
        return True
    try:
        ipaddress.IPv6Address(match[1].decode())
    except ValueError:
        return False
    return True


def _malformed(message: str) -> HTTPError:
    return HTTPError(400, message, code="malformed_http")

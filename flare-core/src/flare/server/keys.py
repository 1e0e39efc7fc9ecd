"""API keys: who may use `/v1`."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from flare.errors import FlareError
from flare.server.error_shapes import refuse
from flare.server.errors import HTTPError

_GUARDED = "/v1"


class ApiKeys:
    """A set of keys that is kept as digests. Empty: everybody may enter.

    Raises FlareError for a key that no HTTP header can carry.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        keys = tuple(keys)
        for key in keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise FlareError(
                    "an API key must be printable ASCII without spaces, and not empty", field="api_key"
                )
        self._digests = tuple(_digest(key.encode()) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def admits(self, key: bytes) -> bool:
        """Whether `key` is one of the keys. Takes the same time for every wrong key."""
        digest = _digest(key)
        # A sum: every comparison is made, whichever key matches.
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def read_key_file(path: Path) -> list[str]:
    """Keys of a file with one per line; empty lines and lines that start with `#` are skipped.

    Raises FlareError when it holds none, OSError when it cannot be read.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except UnicodeDecodeError:
        raise FlareError(
            f"{path} is not a text file with one API key per line", field="api_key_file"
        ) from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise FlareError(f"{path} holds no API key; write one per line", field="api_key_file")
    return keys


class KeyGuard:
    """Pure ASGI middleware: paths under `/v1` need a key, as in vLLM; the others are for whoever watches over
    the server. Takes `authorization: Bearer KEY` and `x-api-key: KEY`."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and _guarded(scope["path"]):
            sent = _keys_of(scope)
            if not any(self._keys.admits(key) for key in sent):
                message = "the API key is not one of this server's" if sent else "no API key was sent"
                error = HTTPError(
                    401,
                    f"{message}; use the header `authorization: Bearer KEY` or `x-api-key: KEY`",
                    code="invalid_api_key",
                )
                await refuse(scope, error, {"www-authenticate": "Bearer"})(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _guarded(path: str) -> bool:
    return path == _GUARDED or path.startswith(_GUARDED + "/")


def _keys_of(scope: Scope) -> list[bytes]:
    keys: list[bytes] = []
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            keys.append(value.strip())
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                keys.append(key.strip())
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()

"""Where the bytes of an image come from: `data:` addresses (RFC 2397). Nothing is ever fetched."""

from __future__ import annotations

import base64
import binascii

from flare.errors import RequestError

_SHOWN = 60


def image_bytes(address: str, most: int, where: str) -> bytes:
    """The encoded image at `address`. Raises RequestError, naming `where`, for any other address than
    `data:image/...;base64,...`, and for more than `most` bytes."""
    head, comma, body = address.partition(",")
    if not address[:5].lower() == "data:":
        raise RequestError(
            f"{where}: {address[:_SHOWN]!r} is not fetched: this server takes images as data: addresses only",
            field=where,
        )
    media, *parameters = head[5:].split(";")
    if not comma or not media.lower().startswith("image/") or parameters[-1:] != ["base64"]:
        raise RequestError(f"{where} must be of the form data:image/TYPE;base64,DATA", field=where)
    if len(body) * 3 // 4 > most + 2:
        raise RequestError(f"{where} has more than {most} bytes", field=where)
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise RequestError(f"{where} is not base64: {error}", field=where) from None

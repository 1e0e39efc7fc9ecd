"""Where the bytes of an image come from: `data:` addresses (RFC 2397). Nothing is fetched here; who may fetch
passes on what it got."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from flare.errors import RequestError
from flare.frontend.errors import ImageAddressError

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ImageAddress:
    """The address of an image, and where in the body it stands."""

    address: str
    where: str

    @property
    def is_remote(self) -> bool:
        """Whether it names a file on a server."""
        return self.address[:8].lower().startswith(("http://", "https://"))


class ImagesWanted(Exception):
    """A prompt cannot be made before the images at these addresses are there."""

    def __init__(self, addresses: Sequence[ImageAddress]) -> None:
        super().__init__(addresses)
        self.addresses = tuple(addresses)


def image_bytes(address: str, most: int, where: str) -> bytes:
    """The encoded image at `address`. Raises RequestError, naming `where`, for any other `data:` address than
    `data:image/...;base64,...` and for more than `most` bytes, and ImageAddressError for other addresses."""
    head, comma, body = address.partition(",")
    if not address[:5].lower() == "data:":
        raise ImageAddressError(
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

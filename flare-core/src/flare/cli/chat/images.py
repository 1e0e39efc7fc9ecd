"""Images of a question."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from flare.errors import RequestError

_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_ADDRESSES = ("data:image/", "http://", "https://")


def image_part(given: str) -> dict[str, Any]:
    """The part of a message (https://platform.openai.com/docs/guides/images-vision) for a file, or for a
    `data:` or web address, which the server reads. Raises RequestError for a file that holds no image of the
    formats that the API takes, OSError for one that cannot be read."""
    if given.startswith("data:") and not given.startswith(_ADDRESSES):
        raise RequestError(f"{given[:40]!r} is the address of no image", field="image")
    address = given if given.startswith(_ADDRESSES) else _file(Path(given).expanduser())
    return {"type": "image_url", "image_url": {"url": address}}


def _file(path: Path) -> str:
    content = path.read_bytes()
    kind = next((kind for start, kind in _TYPES.items() if content.startswith(start)), None)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        raise RequestError(f"{path} is no image in PNG, JPEG, GIF or WebP", field="image")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def question(text: str, images: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The content of a message: images in front of the text that asks about them."""
    return [*images, {"type": "text", "text": text}] if images else text

"""Chat messages as clients send them, brought into the one shape that templates see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flare.errors import RequestError
from flare.frontend.errors import UnsupportedError

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImageAddress:
    """The address of an image, and where in the body it stands."""

    address: str
    where: str


_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_UNSERVED_ROLES = ("tool", "function")
_UNSERVED_FIELDS = ("tool_calls", "function_call", "audio")


def normalize_messages(messages: Sequence[Any], images: list[ImageAddress] | None = None) -> list[Message]:
    """Messages with a string `content`; other fields of a message are kept for the template, nulls dropped.
    With a list in `images`, the addresses of image parts are appended to it, and the content of a message
    that has some stays a list of parts, each `{"type": "text", "text": ...}` or `{"type": "image"}`.

    `developer` is the newer name of `system`
    (https://platform.openai.com/docs/api-reference/chat/create). Any role may stand anywhere. Text parts of
    one message are joined by newlines, as vLLM does for templates that expect strings.

    Raises: RequestError naming the message and field at fault, UnsupportedError for parts other than text and
    for tool traffic.
    """
    if not messages:
        raise RequestError("messages must hold at least one message", field="messages")
    return [_normalize(message, f"messages[{index}]", images) for index, message in enumerate(messages)]


def _normalize(message: Any, where: str, images: list[ImageAddress] | None) -> Message:
    if not isinstance(message, dict):
        raise RequestError(f"{where} must be an object with a role and content", field=where)
    role = message.get("role")
    if role in _UNSERVED_ROLES:
        raise UnsupportedError(f"{where}: role {role!r} is not served by this model", field=f"{where}.role")
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(
            f"{where}.role must be one of {', '.join(_ROLES)}, got {role!r}", field=f"{where}.role"
        )
    for name in _UNSERVED_FIELDS:
        if message.get(name):
            raise UnsupportedError(f"{where}.{name} is not served by this model", field=f"{where}.{name}")
    if not isinstance(message.get("name"), str | None):
        raise RequestError(f"{where}.name must be a string", field=f"{where}.name")
    content = _content(message.get("content"), f"{where}.content", images)
    kept = {key: value for key, value in message.items() if value is not None and key not in _UNSERVED_FIELDS}
    return {**kept, "role": _ROLES[role], "content": content}


def _content(content: Any, where: str, images: list[ImageAddress] | None) -> str | list[dict[str, str]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list of parts", field=where)
    parts = [_part(part, f"{where}[{index}]", images) for index, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(part: Any, where: str, images: list[ImageAddress] | None) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise RequestError(f"{where} must be an object with a type", field=where)
    if kind == "image_url" and images is not None:
        images.append(_address(part.get("image_url"), f"{where}.image_url"))
        return {"type": "image"}
    if kind != "text":
        raise UnsupportedError(f"{where}: parts of type {kind!r} are not served by this model", field=where)
    text = part.get("text")
    if not isinstance(text, str):
        raise RequestError(f"{where}.text must be a string", field=f"{where}.text")
    return {"type": "text", "text": text}


def _address(image: Any, where: str) -> ImageAddress:
    """Both shapes that clients send: an object with `url`, and the address itself."""
    address = image.get("url") if isinstance(image, dict) else image
    if not isinstance(address, str):
        raise RequestError(f"{where}.url must be a string", field=f"{where}.url")
    return ImageAddress(address, f"{where}.url")

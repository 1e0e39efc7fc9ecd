"""Chat messages as clients send them, brought into the one shape that templates see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flare.errors import RequestError
from flare.frontend.errors import UnsupportedError
from flare.frontend.images import ImageAddress
from flare.frontend.message_form import MessageForm
from flare.frontend.tool_calls import CallReader

Message = dict[str, Any]


_ROLES = ("system", "developer", "user", "assistant", "tool")
_UNSERVED_FIELDS = ("function_call", "audio")
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names that clients have for an assistant's reasoning; templates know the first, some the second."""
_STRINGS = ("name", "tool_call_id", *_REASONING)


def normalize_messages(
    messages: Sequence[Any], images: list[ImageAddress] | None = None, form: MessageForm | None = None
) -> list[Message]:
    """Messages as Transformers gives them to a template of this `form`; nulls are dropped, other fields of a
    message are kept. With a list in `images`, the addresses of image parts are appended to it, and the
    content of a message that has some stays a list of parts, each `{"type": "text", "text": ...}` or
    `{"type": "image"}`.

    `developer` is the newer name of `system` (https://platform.openai.com/docs/api-reference/chat/create).
    Any role may stand anywhere. Where the template expects strings, text parts of one message are joined by
    newlines, as vLLM does. Arguments of calls become objects. An assistant's content may be absent beside
    calls or reasoning.

    Raises: RequestError naming the message and field at fault, UnsupportedError for other parts and calls.
    """
    if not messages:
        raise RequestError("messages must hold at least one message", field="messages")
    reader = _Reader(images, form or MessageForm())
    return [reader.read(message, f"messages[{index}]") for index, message in enumerate(messages)]


class _Reader:
    def __init__(self, images: list[ImageAddress] | None, form: MessageForm) -> None:
        self._images = images
        self._form = form
        self._calls = CallReader()

    def read(self, message: Any, where: str) -> Message:
        if not isinstance(message, dict):
            raise RequestError(f"{where} must be an object with a role and content", field=where)
        role = self._role(message.get("role"), where)
        for name in _UNSERVED_FIELDS:
            if message.get(name):
                raise UnsupportedError(f"{where}.{name} is not served by this model", field=f"{where}.{name}")
        for name in _STRINGS:
            if not isinstance(message.get(name), str | None):
                raise RequestError(f"{where}.{name} must be a string", field=f"{where}.{name}")
        read = {
            key: value
            for key, value in message.items()
            if value is not None and key not in (*_UNSERVED_FIELDS, "tool_calls")
        }
        read["role"] = role
        calls = self._calls.read(message.get("tool_calls"), f"{where}.tool_calls")
        if calls and role != "assistant":
            raise RequestError(
                f"{where}.tool_calls: only an assistant calls tools", field=f"{where}.tool_calls"
            )
        if calls:
            read["tool_calls"] = calls
        read = _with_reasoning(read)
        if "content" in read or role != "assistant" or not _speaks_otherwise(read):
            read["content"] = self._content(read.get("content"), role, f"{where}.content")
        return read

    def _role(self, role: Any, where: str) -> str:
        if role == "function":
            raise UnsupportedError(
                f"{where}: role 'function' is not served; its successor is 'tool'", field=f"{where}.role"
            )
        if not isinstance(role, str) or role not in _ROLES:
            raise RequestError(
                f"{where}.role must be one of {', '.join(_ROLES)}, got {role!r}", field=f"{where}.role"
            )
        return "system" if role == "developer" and not self._form.developer else role

    def _content(self, content: Any, role: str, where: str) -> str | list[dict[str, str]]:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise RequestError(f"{where} must be a string or a list of parts", field=where)
        parts = [self._part(part, f"{where}[{index}]") for index, part in enumerate(content)]
        if role not in self._form.part_roles and all(part["type"] == "text" for part in parts):
            return "\n".join(part["text"] for part in parts)
        return parts

    def _part(self, part: Any, where: str) -> dict[str, str]:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise RequestError(f"{where} must be an object with a type", field=where)
        if kind == "image_url" and self._images is not None:
            self._images.append(_address(part.get("image_url"), f"{where}.image_url"))
            return {"type": "image"}
        if kind != "text":
            raise UnsupportedError(
                f"{where}: parts of type {kind!r} are not served by this model", field=where
            )
        text = part.get("text")
        if not isinstance(text, str):
            raise RequestError(f"{where}.text must be a string", field=f"{where}.text")
        return {"type": "text", "text": text}


def _with_reasoning(message: Message) -> Message:
    """With the reasoning under both names that templates know, wherever a client has put it."""
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _speaks_otherwise(message: Message) -> bool:
    return bool(message.get("tool_calls") or message.get("reasoning_content"))


def _address(image: Any, where: str) -> ImageAddress:
    """Both shapes that clients send: an object with `url`, and the address itself."""
    address = image.get("url") if isinstance(image, dict) else image
    if not isinstance(address, str):
        raise RequestError(f"{where}.url must be a string", field=f"{where}.url")
    return ImageAddress(address, f"{where}.url")

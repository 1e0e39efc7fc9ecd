"""Input items of a Responses request as messages of a chat."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from flare.errors import RequestError
from flare.frontend import UnsupportedError
from flare.server.content import joined_texts, kind_of, string_in
from flare.server.responses.offer import Offered

Item = dict[str, Any]

_SEALED = "flare1:"
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def seal(reasoning: str) -> str:
    """Reasoning as `encrypted_content`: clients without stored state send it back with the next turn. It is
    packed, not secret."""
    return _SEALED + base64.b64encode(reasoning.encode()).decode()


def unseal(content: str) -> str | None:
    """The reasoning in what `seal` made; None for another service's."""
    if not content.startswith(_SEALED):
        return None
    try:
        return base64.b64decode(content[len(_SEALED) :], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def chat_messages(given: str | list[Any], instructions: str | None) -> tuple[list[Item], list[str]]:
    """Messages, and types of items that were left out: calls of tools that only their own service has, and
    reasoning that only it can read. Raises RequestError naming the item at fault."""
    reader = _Reader()
    if instructions:
        reader.messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        reader.messages.append({"role": "user", "content": given})
        return reader.messages, []
    for index, item in enumerate(given):
        reader.read(item, f"input[{index}]")
    return reader.messages, sorted(reader.left_out)


class _Reader:
    """What the model said in one turn is several items, and one message."""

    def __init__(self) -> None:
        self.messages: list[Item] = []
        self.left_out: set[str] = set()
        self._said: Item | None = None

    def read(self, item: Any, where: str) -> None:
        if not isinstance(item, dict):
            raise RequestError(f"{where} must be an object", field=where)
        match item.get("type", "message"):
            case "message":
                self._message(item, where)
            case "reasoning":
                self._reasoning(item, where)
            case "function_call":
                self._call(item, where, string_in(item, "arguments", where))
            case "custom_tool_call":
                self._call(item, where, json.dumps({"input": string_in(item, "input", where)}))
            case "function_call_output" | "custom_tool_call_output":
                self._result(item, where)
            case "item_reference":
                raise UnsupportedError(
                    f"{where}: nothing is stored here; send the item itself", field=f"{where}.type"
                )
            case str(kind) if kind.endswith(("_call", "_output")):
                self.left_out.add(kind[:64])
            case kind:
                raise UnsupportedError(
                    f"{where}: items of type {str(kind)[:64]!r} are not served here", field=f"{where}.type"
                )

    def _message(self, item: Item, where: str) -> None:
        content = _content(item.get("content"), f"{where}.content")
        if item.get("role") != "assistant":
            self._said = None
            self.messages.append({"role": item.get("role"), "content": content})
            return
        said = self._open("content", "tool_calls")
        said["content"] = content

    def _reasoning(self, item: Item, where: str) -> None:
        parts = item.get("content") or []
        text = _content(parts, f"{where}.content") if parts else ""
        sealed = item.get("encrypted_content")
        if not text and isinstance(sealed, str):
            text = unseal(sealed) or ""
        if not text:
            self.left_out.add("reasoning")
            return
        self._open("reasoning_content", "content", "tool_calls")["reasoning_content"] = text

    def _call(self, item: Item, where: str, arguments: str) -> None:
        name, namespace = string_in(item, "name", where), item.get("namespace")
        shown = Offered(name, namespace if isinstance(namespace, str) else None).shown
        call = {
            "id": string_in(item, "call_id", where),
            "type": "function",
            "function": {"name": shown, "arguments": arguments},
        }
        self._open().setdefault("tool_calls", []).append(call)

    def _result(self, item: Item, where: str) -> None:
        self._said = None
        content = _content(item.get("output"), f"{where}.output")
        identity = string_in(item, "call_id", where)
        self.messages.append({"role": "tool", "tool_call_id": identity, "content": content})

    def _open(self, *behind: str) -> Item:
        """What the model said, unless it has one of `behind` already: then it said something new."""
        if self._said is None or any(self._said.get(name) for name in behind):
            self._said = {"role": "assistant", "content": ""}
            self.messages.append(self._said)
        return self._said


def _content(content: Any, where: str) -> str | list[Item]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list of parts", field=where)
    parts = [_part(part, f"{where}[{index}]") for index, part in enumerate(content)]
    return joined_texts(parts)


def _part(part: Any, where: str) -> Item:
    kind = kind_of(part, where)
    if kind in _TEXTS:
        return {"type": "text", "text": string_in(part, "text", where)}
    if kind == "refusal":
        return {"type": "text", "text": string_in(part, "refusal", where)}
    if kind == "input_image":
        return {"type": "image_url", "image_url": {"url": string_in(part, "image_url", where)}}
    raise UnsupportedError(f"{where}: parts of type {kind[:64]!r} are not served here", field=where)

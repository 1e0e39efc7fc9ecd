"""Content blocks of the Messages protocol as messages of a chat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flare.errors import RequestError
from flare.frontend import UnsupportedError
from flare.server.content import joined_texts, kind_of, string_in
from flare.server.messages.body import Content

Block = dict[str, Any]

_HEADER = "x-anthropic-billing-header:"
"""Begins a block of the system prompt that is another one in every request; it says nothing to a model."""


def system_text(content: Content, where: str) -> str:
    """The system prompt: texts of its blocks, one behind the other on new lines."""
    return "\n".join(
        text
        for place, block in _blocks(content, where)
        if not (text := _text(block, place)).startswith(_HEADER)
    )


def assistant_message(content: Content, where: str) -> dict[str, Any]:
    """What the model said: text, reasoning, calls. Reasoning that only its service can read is left out."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for place, block in _blocks(content, where):
        match kind_of(block, place):
            case "text":
                texts.append(_text(block, place))
            case "thinking":
                thoughts.append(string_in(block, "thinking", place))
            case "redacted_thinking":
                continue
            case "tool_use":
                calls.append(_call(block, place))
            case kind:
                raise _unserved(kind, place)
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def user_messages(content: Content, where: str) -> list[dict[str, Any]]:
    """Results of tools, then what the user said, as one message each."""
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for place, block in _blocks(content, where):
        if kind_of(block, place) == "tool_result":
            results.append(_result(block, place))
        else:
            parts.append(_part(block, place))
    if parts or not results:
        results.append({"role": "user", "content": joined_texts(parts)})
    return results


def _result(block: Block, where: str) -> dict[str, Any]:
    given = block.get("content")
    if not isinstance(given, str | list | None):
        raise RequestError(f"{where}.content must be a string or a list of blocks", field=f"{where}.content")
    parts = [_part(part, place) for place, part in _blocks(given or "", f"{where}.content")]
    return {
        "role": "tool",
        "tool_call_id": string_in(block, "tool_use_id", where),
        "content": joined_texts(parts),
    }


def _call(block: Block, where: str) -> dict[str, Any]:
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise RequestError(f"{where}.input must be an object", field=f"{where}.input")
    function = {"name": string_in(block, "name", where), "arguments": arguments}
    return {"id": string_in(block, "id", where), "type": "function", "function": function}


def _part(block: Block, where: str) -> dict[str, Any]:
    """Text or an image, as a part of a chat message."""
    match kind_of(block, where):
        case "text":
            return {"type": "text", "text": _text(block, where)}
        case "image":
            return {"type": "image_url", "image_url": {"url": _address(block.get("source"), where)}}
        case kind:
            raise _unserved(kind, where)


def _address(source: Any, where: str) -> str:
    where = f"{where}.source"
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "base64":
        return f"data:{string_in(source, 'media_type', where)};base64,{string_in(source, 'data', where)}"
    if kind == "url":
        return string_in(source, "url", where)
    raise UnsupportedError(f"{where}: sources of type {kind!r} are not served", field=where)


def _blocks(content: Content, where: str) -> Iterable[tuple[str, Block]]:
    if isinstance(content, str):
        return [(where, {"type": "text", "text": content})] if content else []
    return [(f"{where}[{index}]", block) for index, block in enumerate(content)]


def _text(block: Block, where: str) -> str:
    if (kind := kind_of(block, where)) != "text":
        raise _unserved(kind, where)
    return string_in(block, "text", where)


def _unserved(kind: str, where: str) -> UnsupportedError:
    return UnsupportedError(f"{where}: blocks of type {kind[:64]!r} are not served here", field=where)

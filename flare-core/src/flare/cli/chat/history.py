"""What was said so far, as messages of the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flare.cli.chat.answer import Call
from flare.errors import RequestError

Message = dict[str, Any]
_ROLES = ("system", "developer", "user", "assistant", "tool")
_NO_RESULT = "There is no result."


def text_of(message: Message) -> str:
    """The text of a message, without its images."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
    return content or ""


def images_of(message: Message) -> list[Message]:
    """Its parts that are no text."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict) and "text" not in part]


class History:
    """`messages` end with an answer, or with what waits for one: a question whose request failed, results."""

    def __init__(self, system: str | None = None) -> None:
        self.messages: list[Message] = []
        if system:
            self.system = system

    @property
    def system(self) -> str | None:
        """The text of a system message in front."""
        return text_of(self.messages[0]) if self._has_system else None

    @system.setter
    def system(self, text: str | None) -> None:
        rest = self.messages[1:] if self._has_system else self.messages
        self.messages = [{"role": "system", "content": text}, *rest] if text else list(rest)

    @property
    def _has_system(self) -> bool:
        return bool(self.messages) and self.messages[0]["role"] == "system"

    @property
    def waits(self) -> bool:
        """Whether the last message waits for an answer."""
        return bool(self.messages) and self.messages[-1]["role"] in ("user", "tool")

    def ask(self, content: str | list[Message]) -> None:
        """A question, in the place of one that got no answer; calls that got no result are told so."""
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()
        for call in self._open_calls():
            self._add_result(call["id"], _NO_RESULT)
        self.messages.append({"role": "user", "content": content})

    def add_answer(self, message: Message) -> None:
        """The answer to the last message."""
        self.messages.append(message)

    def add_result(self, call: Call, result: str) -> None:
        """The result of one of the last answer's calls."""
        self._add_result(call.id, result)

    def _add_result(self, call: str, result: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call, "content": result})

    def _open_calls(self) -> list[Message]:
        answered = set()
        for message in reversed(self.messages):
            if message["role"] != "tool":
                calls = message.get("tool_calls") or ()
                return [call for call in calls if call.get("id") not in answered]
            answered.add(message.get("tool_call_id"))
        return []

    def take_back(self) -> Message | None:
        """Remove the last question and all behind it; returns it, None when there is none."""
        found = self._last("user")
        if found is None:
            return None
        question = self.messages[found]
        del self.messages[found:]
        return question

    def branch(self) -> bool:
        """Remove the last answer, so that another can be drawn to the same prompt, unless the end waits for
        one anyway. False when there is nothing to answer."""
        if not self.waits or self._open_calls():
            found = self._last("assistant")
            if found is None:
                return False
            del self.messages[found:]
        return self.waits

    def _last(self, role: str) -> int | None:
        places = [place for place, message in enumerate(self.messages) if message["role"] == role]
        return places[-1] if places else None

    def save(self, path: Path) -> None:
        """Write the messages as a JSON list. A file that holds anything else is left alone: RequestError."""
        if path.exists():
            _read(path)
        text = json.dumps(self.messages, indent=1, ensure_ascii=False) + "\n"
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Go on from saved messages. Raises RequestError for a file that holds none, OSError."""
        self.messages = _read(path)


def _read(path: Path) -> list[Message]:
    try:
        messages = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(messages, ensure_ascii=False).encode()  # lone surrogates cannot be sent
    except ValueError as error:
        raise RequestError(f"{path} is no saved conversation: {error}") from error
    if not isinstance(messages, list):
        raise RequestError(f"{path} is no saved conversation: it has no list of messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise RequestError(f"{path} is no saved conversation: message {index} has no role that is known")
        if not isinstance(message.get("content"), str | list | None):
            raise RequestError(f"{path} is no saved conversation: message {index} has no content")
        if not isinstance(calls := message.get("tool_calls"), list | None) or not all(
            isinstance(call, dict) for call in calls or ()
        ):
            raise RequestError(f"{path} is no saved conversation: message {index} has no list of calls")
    return messages

"""Chat completions on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flare.frontend.output_machine import Arguments, Broken, CallStart, OutputEvent, Reasoning
from flare.server.choices import Choice, ScoredToken
from flare.server.formats import CompletionsFormat
from flare.server.logprobs import chat_logprobs
from flare.server.outcome import Outcome, new_call_id
from flare.server.wire import json_bytes


class ChatFormat(CompletionsFormat):
    """https://platform.openai.com/docs/api-reference/chat: role, then content and calls, then the finish
    reason. Calls that do not follow the model's format are `broken_tool_calls` of the choice, a field of our
    own, as the model wrote them: as content they would be taken for an answer."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._numbers: dict[tuple[int, int], int] = {}
        self._broken: dict[int, list[str]] = {}

    def choice(self, outcome: Outcome, choice: Choice) -> dict[str, Any]:
        """See `CompletionsFormat`. Reasoning has a field of its own, where other servers have it."""
        # https://api-docs.deepseek.com/guides/reasoning_model
        calls = [
            {
                "id": new_call_id(),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in outcome.calls.values()
        ]
        content = outcome.answer or (None if calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if outcome.reasoning:
            message["reasoning_content"] = outcome.reasoning
        if calls:
            message["tool_calls"] = calls
        broken = {"broken_tool_calls": outcome.broken} if outcome.broken else {}
        return {"message": message, **broken}

    def opening(self, choice: Choice) -> bytes | None:
        """See `CompletionsFormat`."""
        return b'"delta":{"role":"assistant","content":""}'

    def piece(self, text: str) -> bytes:
        """See `CompletionsFormat`."""
        return b'"delta":{"content":' + json_bytes(text) + b"}"

    def event(self, choice: Choice, event: OutputEvent) -> bytes | None:
        """See `CompletionsFormat`. A call's id and name come with its beginning only."""
        match event:
            case Reasoning(text):
                return b'"delta":{"reasoning_content":' + json_bytes(text) + b"}"
            case CallStart(index, name):
                number = sum(1 for key in self._numbers if key[0] == choice.index)
                self._numbers[choice.index, index] = number
                function = {"name": name, "arguments": ""}
                return _call({"index": number, "id": new_call_id(), "type": "function", "function": function})
            case Arguments(index, text):
                return _call({"index": self._numbers[choice.index, index], "function": {"arguments": text}})
            case Broken(_, text):
                self._broken.setdefault(choice.index, []).append(text)
        return None

    def closing(self, choice: Choice) -> bytes:
        """See `CompletionsFormat`."""
        if broken := self._broken.get(choice.index):
            return b'"delta":{},"broken_tool_calls":' + json_bytes(broken)
        return b'"delta":{}'

    def reason(self, choice: Choice) -> str:
        """See `CompletionsFormat`: `tool_calls` when the output ended with complete ones."""
        reason = super().reason(choice)
        return "tool_calls" if choice.called and reason == "stop" else reason

    def logprobs(self, scored: Sequence[ScoredToken], choice: Choice) -> msgspec.Raw:
        """See `CompletionsFormat`."""
        return chat_logprobs(scored, self._vocabulary)


def _call(fields: dict[str, Any]) -> bytes:
    return b'"delta":{"tool_calls":[' + json_bytes(fields) + b"]}"

"""Loops of turns and tools as programs write them with the clients' packages: each returns what the model
said at last, and the cached tokens that every turn reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import task_tools
from anthropic import beta_tool
from anthropic.lib.tools import ToolError
from live import MODEL
from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner
from task_tools import Tools

Result = tuple[str, list[int]]
Loop = Callable[[str, str, Tools], Result]
"""Of the server's address, the task, and the tools."""


def _openai(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _anthropic(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def _chat(url: str, task: str, tools: Tools, ask: Callable[..., Any]) -> Result:
    messages: list[Any] = [{"role": "user", "content": task}]
    cached = []
    with _openai(url) as client:
        while True:
            completion = ask(client, model=MODEL, messages=messages, tools=task_tools.CHAT)
            cached.append(completion.usage.prompt_tokens_details.cached_tokens)
            choice = completion.choices[0]
            if choice.finish_reason == "stop":
                return choice.message.content, cached
            assert choice.finish_reason == "tool_calls"
            messages.append(choice.message)
            for call in choice.message.tool_calls:
                result, _ = tools.reported(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def chat(url: str, task: str, tools: Tools) -> Result:
    """Whole completions."""
    return _chat(url, task, tools, lambda client, **asked: client.chat.completions.create(**asked))


def chat_streamed(url: str, task: str, tools: Tools) -> Result:
    """The package's helper puts completions together."""

    def ask(client: openai.OpenAI, **asked: Any) -> Any:
        options: Any = {"include_usage": True}
        with client.chat.completions.stream(**asked, stream_options=options) as stream:
            return stream.get_final_completion()

    return _chat(url, task, tools, ask)


def _responses(url: str, task: str, tools: Tools, ask: Callable[..., Any]) -> Result:
    items: list[Any] = [{"role": "user", "content": task}]
    cached = []
    with _openai(url) as client:
        while True:
            response = ask(client, model=MODEL, input=items, tools=task_tools.RESPONSES, store=False)
            assert response.status == "completed"
            cached.append(response.usage.input_tokens_details.cached_tokens)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text, cached
            items += response.output
            for call in calls:
                result, _ = tools.reported(call.name, json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def responses(url: str, task: str, tools: Tools) -> Result:
    """Whole responses."""
    return _responses(url, task, tools, lambda client, **asked: client.responses.create(**asked))


def responses_streamed(url: str, task: str, tools: Tools) -> Result:
    """The package's helper puts responses together."""

    def ask(client: openai.OpenAI, **asked: Any) -> Any:
        with client.responses.stream(**asked) as stream:
            return stream.get_final_response()

    return _responses(url, task, tools, ask)


def responses_sealed(url: str, task: str, tools: Tools) -> Result:
    """Items go back as agents send them that keep reasoning sealed: without its text."""

    def ask(client: openai.OpenAI, **asked: Any) -> Any:
        include: Any = ["reasoning.encrypted_content"]
        response = client.responses.create(**asked, include=include)
        for item in response.output:
            if item.type == "reasoning":
                item.content = None
        return response

    return _responses(url, task, tools, ask)


def _responses_runner(url: str, task: str, tools: Tools, stream: bool) -> Result:
    functions = [
        RegisteredFunction(tool, lambda given, name=tool["name"]: tools.reported(name, given)[0])
        for tool in task_tools.RESPONSES
    ]
    params: Any = {"model": MODEL, "input": [{"role": "user", "content": task}], "store": False}
    with _openai(url) as client:
        turns = list(ResponsesToolRunner(functions=functions).iterate(client, params, stream=stream))
    usages = [turn.response.usage for turn in turns]
    return turns[-1].response.output_text, [u.input_tokens_details.cached_tokens for u in usages if u]


def responses_runner(url: str, task: str, tools: Tools) -> Result:
    """The package runs the tools."""
    return _responses_runner(url, task, tools, False)


def responses_runner_streamed(url: str, task: str, tools: Tools) -> Result:
    """The package runs the tools, of streams."""
    return _responses_runner(url, task, tools, True)


def _messages(url: str, task: str, tools: Tools, ask: Callable[..., Any]) -> Result:
    messages: list[Any] = [{"role": "user", "content": task}]
    cached = []
    with _anthropic(url) as client:
        while True:
            asked = {"model": MODEL, "messages": messages, "tools": task_tools.MESSAGES, "max_tokens": 1000}
            message = ask(client, **asked)
            cached.append(message.usage.cache_read_input_tokens)
            if message.stop_reason == "end_turn":
                return message.content[-1].text, cached
            assert message.stop_reason == "tool_use"
            messages.append({"role": "assistant", "content": message.content})
            results = []
            for call in (block for block in message.content if block.type == "tool_use"):
                result, failed = tools.reported(call.name, call.input)
                block = {"type": "tool_result", "tool_use_id": call.id, "content": result}
                results.append({**block, "is_error": failed})
            messages.append({"role": "user", "content": results})


def messages(url: str, task: str, tools: Tools) -> Result:
    """Whole messages."""
    return _messages(url, task, tools, lambda client, **asked: client.messages.create(**asked))


def messages_streamed(url: str, task: str, tools: Tools) -> Result:
    """The package's helper puts messages together."""

    def ask(client: anthropic.Anthropic, **asked: Any) -> Any:
        with client.messages.stream(**asked) as stream:
            return stream.get_final_message()

    return _messages(url, task, tools, ask)


def _messages_runner(url: str, task: str, tools: Tools, stream: bool) -> Result:
    """Its conversations are kept by the service where that can: it must be told that this one cannot."""

    def run(name: str, **given: Any) -> str:
        try:
            return tools.run(name, given)
        except LookupError as error:
            raise ToolError(f"error: {error}") from None

    @beta_tool(description="Looks out of the window.")
    def weather(city: str, days: int) -> str:
        return run("weather", city=city, days=days)

    @beta_tool(description="Draws a map.")
    def draw(place: str) -> str:
        return run("draw", place=place)

    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": task}], "max_tokens": 1000}
    said = []
    with _anthropic(url) as client:
        for turn in client.beta.messages.tool_runner(**asked, tools=[weather, draw], stream=stream):
            said.append(turn.get_final_message() if stream else turn)
    return said[-1].content[-1].text, [message.usage.cache_read_input_tokens for message in said]


def messages_runner(url: str, task: str, tools: Tools) -> Result:
    """The package runs the tools."""
    return _messages_runner(url, task, tools, False)


def messages_runner_streamed(url: str, task: str, tools: Tools) -> Result:
    """The package runs the tools, of streams."""
    return _messages_runner(url, task, tools, True)


LOOPS: tuple[Loop, ...] = (
    chat,
    chat_streamed,
    responses,
    responses_streamed,
    responses_sealed,
    responses_runner,
    responses_runner_streamed,
    messages,
    messages_streamed,
    messages_runner,
    messages_runner_streamed,
)

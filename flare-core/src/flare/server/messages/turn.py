"""A request of the Messages protocol as a turn of a chat."""

from __future__ import annotations

from typing import Any

from flare.errors import RequestError
from flare.server.messages.blocks import assistant_message, system_text, user_messages
from flare.server.messages.body import CountRequest, MessagesRequest, Tool
from flare.server.messages.errors import ThreadError
from flare.server.requests import GenerationRequest
from flare.server.structured import flat_format
from flare.server.tools import Tools, read_tools, strict_tools
from flare.server.turn import Turn


def messages_turn(body: MessagesRequest) -> Turn:
    """Raises RequestError naming the field at fault. An output limit above what the context leaves is
    lowered: agents send the limit of the largest model that they know."""
    request = GenerationRequest(
        model=body.model,
        stream=body.stream,
        max_tokens=body.max_tokens,
        stop=body.stop_sequences,
        temperature=body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        response_format=flat_format(body.output_config.format if body.output_config is not None else None),
    )
    left_out = _service_tools(body)
    strict = strict_tools([tool.model_extra for tool in body.tools or ()])
    return Turn(
        id_prefix="msg_",
        request=request,
        messages=chat_messages(body),
        tools=chat_tools(body),
        variables=variables(body),
        effort=body.output_config.effort if body.output_config is not None else None,
        limit_fits=True,
        form_field="output_config.format",
        ignored=[*(body.model_extra or {}), *(f"tools of type {kind}" for kind in left_out), *strict],
    )


def counted_turn(body: CountRequest) -> Turn:
    """A turn that is counted and not run. Raises as `messages_turn` does."""
    return Turn(
        id_prefix="",
        request=GenerationRequest(model=body.model),
        messages=chat_messages(body),
        tools=chat_tools(body),
        variables=variables(body),
        effort=body.output_config.effort if body.output_config is not None else None,
    )


def chat_messages(body: CountRequest) -> list[dict[str, Any]]:
    """The conversation in the shape of chat completions. Raises ThreadError where a part is not sent."""
    if body.thread is not None:
        raise ThreadError(
            "thread is not supported: this server keeps no conversations; send all messages", field="thread"
        )
    messages: list[dict[str, Any]] = []
    if body.system is not None and (text := system_text(body.system, "system")):
        messages.append({"role": "system", "content": text})
    for index, message in enumerate(body.messages):
        where = f"messages[{index}].content"
        if message.role == "system":
            messages.append({"role": "system", "content": system_text(message.content, where)})
        elif message.role == "assistant":
            messages.append(assistant_message(message.content, where))
        else:
            messages += user_messages(message.content, where)
    return messages


def chat_tools(body: CountRequest) -> Tools:
    """The client's tools. Raises RequestError."""
    definitions = []
    for index, tool in enumerate(body.tools or ()):
        if _service(tool):
            continue
        if tool.input_schema is None:
            raise RequestError(
                f"tools[{index}].input_schema must be a JSON schema", field=f"tools[{index}].input_schema"
            )
        function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
        if tool.description is not None:
            function["description"] = tool.description
        definitions.append({"type": "function", "function": function})
    choice: Any = None
    parallel = True
    if body.tool_choice is not None:
        parallel = not body.tool_choice.disable_parallel_tool_use
        choice = {"any": "required", "tool": None}.get(body.tool_choice.type, body.tool_choice.type)
        if choice is None:
            choice = {"type": "function", "name": body.tool_choice.name}
    return read_tools(definitions, choice, parallel)


def variables(body: CountRequest) -> dict[str, Any]:
    """What the template is told about reasoning."""
    told: dict[str, Any] = {}
    if body.thinking is not None:
        told["enable_thinking"] = body.thinking.type != "disabled"
    return told


def _service(tool: Tool) -> bool:
    return tool.type not in (None, "custom")


def _service_tools(body: CountRequest) -> list[str]:
    return sorted({str(tool.type) for tool in body.tools or () if _service(tool)})

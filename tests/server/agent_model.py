"""What a model that reasons and calls tools is here: its format, and a server that plays it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
from function_calls import FUNCTION
from live import LiveServer, say

from flare.contract import CallFormat, CallSyntax, ImageProfile, Mark, OutputFormat, ReasoningFormat
from flare.frontend import FrontendAssets
from flare.server import ServerSettings
from flare.testing.tiny_text import START, tiny_assets

FORM = OutputFormat(
    reasoning=ReasoningFormat(start=Mark(text="<think>"), end=Mark(text="</think>")),
    calls=CallFormat(
        syntax=CallSyntax.TAGGED,
        start=Mark(text="<tool_call>"),
        end=Mark(text="</tool_call>"),
        arguments=FUNCTION,
    ),
)
TEMPLATE = (
    "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content or [] %}"
    "{{ '' if loop.first else '\\n' }}{{ part.text if part.type == 'text' else '" + START + "' }}"
    "{% endfor %}{% endif %}"
    "{% for call in message.tool_calls or [] %}CALL {{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}{{ '\\n' }}{% endfor %}"
    "{% if enable_thinking is defined %}thinking={{ enable_thinking }}\n{% endif %}assistant: "
)
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


def call(name: str, **arguments: str) -> str:
    """A call as the model writes it."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def agent_assets(images: ImageProfile | None = None) -> FrontendAssets:
    """The tiny tokenizer, this module's template and format; and images where it takes some."""
    assets = tiny_assets(template=TEMPLATE)
    return replace(assets, frontend=assets.frontend.model_copy(update={"output": FORM, "images": images}))


@contextmanager
def agent_server(
    text: str = "hello",
    settings: ServerSettings | None = None,
    images: ImageProfile | None = None,
    **script: Any,
) -> Iterator[LiveServer]:
    """A server whose model writes `text`."""
    with LiveServer(settings=settings, assets=agent_assets(images)) as server:
        server.engine.script = say(text, **script)
        with_context(server, 4096)
        yield server


def with_context(server: LiveServer, context: int) -> None:
    """Its engine has another context."""
    assert server.engine.ready is not None
    server.engine.ready = msgspec.structs.replace(server.engine.ready, context=context)

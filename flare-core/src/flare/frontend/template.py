"""Chat templates: Jinja in a sandbox, with the extensions that Transformers gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flare.errors import CoreError, RequestError
from flare.frontend.message_marks import render_marked, with_marks


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation, and the lengths of its text at which complete messages end."""

    text: str
    message_ends: Sequence[int]


class ChatTemplate:
    """Renders the same bytes as `apply_chat_template` of Transformers
    (https://huggingface.co/docs/transformers/chat_templating_writing) for the same messages.

    `special_tokens` are the names a template may use (`bos_token`, `eos_token`, ...). Safe to use from
    several threads. Raises CoreError when `source` is not a template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        try:
            self._template = with_marks(_environment(), source)
        except jinja2.TemplateSyntaxError as error:
            raise CoreError(
                f"the chat template cannot be compiled: line {error.lineno}: {error.message}",
                field="frontend.template_asset",
            ) from None
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """The text of `messages`, with the start of the assistant's next one unless told otherwise.
        `variables` are more that the template may look at, such as `enable_thinking`.

        Raises RequestError when the template refuses the messages or fails on them, and for a variable that
        has a meaning already.
        """
        own: dict[str, Any] = {
            **self._special_tokens,
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": generation_prompt,
        }
        for name in variables or ():
            if name in own or not name.isidentifier() or name.startswith("_"):
                raise RequestError(
                    f"chat_template_kwargs: {name[:64]!r} cannot be given", field="chat_template_kwargs"
                )
        values = {**(variables or {}), **own}
        try:
            return Rendered(*render_marked(self._template, values))
        except Exception as error:  # a template is a program: it can raise anything, and the input is why
            raise RequestError(
                f"the chat template does not take these messages: {error}", field="messages"
            ) from error


class _GenerationTag(Extension):
    """`{% generation %}` marks assistant text for training masks; here it is a plain scope."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> Node | list[Node]:
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which models were not trained on.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)

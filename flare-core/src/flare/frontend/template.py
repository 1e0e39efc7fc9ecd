"""Chat templates: from messages and tools to text, as Transformers renders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import meta, nodes

from flare.errors import CoreError, RequestError
from flare.frontend.efforts import taken_efforts
from flare.frontend.message_form import MessageForm, message_form
from flare.frontend.message_marks import render_marked, with_marks
from flare.frontend.system_places import SystemPlaces, system_places
from flare.frontend.template_environment import template_environment

_ASKED = ({"role": "user", "content": "question"},)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation, and the lengths of its text at which complete messages end."""

    text: str
    message_ends: Sequence[int]


class ChatTemplate:
    """Renders the same bytes as `apply_chat_template` of Transformers
    (https://huggingface.co/docs/transformers/chat_templating_writing) for the same messages and tools.

    `special_tokens` are the names a template may use (`bos_token`, `eos_token`, ...). `form` says what of
    messages the template reads itself, `system_places` where it takes system messages, `efforts` which
    levels of effort, `variables` the names that it looks at. Safe to use from several threads. Raises
    CoreError when `source` is not a template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = template_environment()
        try:
            self._template = with_marks(environment, source)
            parsed = environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise CoreError(
                f"the chat template cannot be compiled: line {error.lineno}: {error.message}",
                field="frontend.template_asset",
            ) from None
        self._special_tokens = dict(special_tokens)
        words = {word.value for word in parsed.find_all(nodes.Const)}
        self.form: MessageForm = message_form(self._probe, "developer" in words)
        self.variables = frozenset(meta.find_undeclared_variables(parsed))
        self.system_places: SystemPlaces = system_places(self._probe)
        self.efforts = taken_efforts(lambda level: self._probe(_ASKED, reasoning_effort=level) is not None)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Rendered:
        """The text of `messages`, with the start of the assistant's next one unless told otherwise.
        `variables` are more that the template may look at, such as `enable_thinking`; `tools` are what the
        model may call, as JSON schemas of functions.

        Raises RequestError when the template refuses the messages or fails on them, and for a variable that
        has a meaning already.
        """
        own = self._own(messages, generation_prompt, tools)
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

    def _own(
        self,
        messages: Sequence[Mapping[str, Any]],
        generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
    ) -> dict[str, Any]:
        return {
            **self._special_tokens,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": generation_prompt,
        }

    def _probe(self, messages: Sequence[Mapping[str, Any]], **variables: str) -> str | None:
        # Without the clock, which may go on between two renderings that are compared.
        values = {**variables, **self._own(messages, False, None), "strftime_now": str}
        try:
            return render_marked(self._template, values)[0]
        except Exception:  # see `render`
            return None

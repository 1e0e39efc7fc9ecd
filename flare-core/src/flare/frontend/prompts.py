"""Prompts: from messages, text or token ids to the token ids a request starts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flare.contract import TemplateKind
from flare.errors import CoreError, RequestError
from flare.frontend.assets import FrontendAssets
from flare.frontend.efforts import nearest_effort
from flare.frontend.errors import ContextLengthError, TooManyTokens, UnsupportedError
from flare.frontend.images import (
    ImageAddress,
    ImageCache,
    ImageLimits,
    ImagesWanted,
    PlacedImage,
    expand,
)
from flare.frontend.message_form import MessageForm
from flare.frontend.messages import normalize_messages
from flare.frontend.system_places import SystemPlaces
from flare.frontend.template import ChatTemplate, Rendered
from flare.frontend.tokenizer import Tokenizer
from flare.frontend.tools import normalize_tools


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, never empty, and the text they came from (None when they were given). `endpoints` are the
    numbers of tokens at which complete messages end; `images` and `rope_positions` (see `Expanded`) of a
    prompt that has images."""

    tokens: tuple[int, ...]
    text: str | None
    endpoints: tuple[int, ...] = ()
    images: tuple[PlacedImage, ...] = ()
    rope_positions: bytes = b""


class Prompts:
    """Makes prompts for one core. CPU-heavy for long input, safe to use from several threads.
    `remote_images`: the caller fetches images, when it is told to by ImagesWanted.

    Raises CoreError when the core's assets cannot be used.
    """

    def __init__(
        self, assets: FrontendAssets, image_limits: ImageLimits | None = None, remote_images: bool = False
    ) -> None:
        self._remote_images = remote_images
        frontend = assets.frontend
        self._profile = frontend.images
        self._images = None if frontend.images is None else ImageCache(frontend.images, image_limits)
        bos = frontend.special_tokens.get("bos_token") if frontend.add_bos else None
        if frontend.add_bos and bos is None:
            raise CoreError("add_bos without a bos_token", field="frontend.special_tokens")
        self.tokenizer = Tokenizer(assets.tokenizer, bos)
        self._vocab_size = frontend.vocab_size
        self._template: ChatTemplate | None = None
        if frontend.template_kind is TemplateKind.JINJA:
            if assets.template is None:
                raise CoreError("the core has no chat template", field="frontend.template_asset")
            self._template = ChatTemplate(assets.template, frontend.special_tokens)

    @property
    def message_form(self) -> MessageForm:
        """What of messages the template reads itself."""
        return MessageForm() if self._template is None else self._template.form

    @property
    def system_places(self) -> SystemPlaces:
        """Where the template takes system messages."""
        return SystemPlaces() if self._template is None else self._template.system_places

    def from_messages(
        self,
        messages: Sequence[Any],
        context: int | None = None,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Any] | None = None,
        fetched: Mapping[str, bytes | bytearray] | None = None,
        where: str = "messages",
    ) -> Prompt:
        """The prompt for the assistant's next message; `variables` are more of the template's, `tools` what
        the model may call, `fetched` the contents of remote images by address, `where` the field that holds
        the messages. Raises RequestError, UnsupportedError, and ContextLengthError for more than `context`
        tokens; ImagesWanted where the caller fetches and has not."""
        addresses: list[ImageAddress] = []
        rendered = self._rendered(messages, addresses, variables=variables, tools=tools)
        contents = fetched or {}
        wanted = [one for one in addresses if one.is_remote and one.address not in contents]
        if wanted and self._remote_images:
            raise ImagesWanted(wanted)
        try:
            tokens, endpoints = self.tokenizer.encode_marked(rendered.text, rendered.message_ends, context)
        except TooManyTokens as error:
            raise ContextLengthError.of_prompt(error.count, error.most, where) from None
        if not addresses:
            return _prompt(tokens, rendered.text, where, endpoints)
        return self._with_images(rendered.text, tokens, endpoints, addresses, contents, context, where)

    def _with_images(
        self,
        text: str,
        tokens: Sequence[int],
        endpoints: Sequence[int],
        addresses: Sequence[ImageAddress],
        contents: Mapping[str, bytes | bytearray],
        context: int | None,
        where: str,
    ) -> Prompt:
        assert self._images is not None
        assert self._profile is not None
        images = [self._images.get(one.address, one.where, contents.get(one.address)) for one in addresses]
        expanded = expand(tokens, endpoints, images, self._profile)
        if context is not None and len(expanded.tokens) > context:
            raise ContextLengthError.of_prompt(len(expanded.tokens), context, where)
        return Prompt(expanded.tokens, text, expanded.endpoints, expanded.images, expanded.rope_positions)

    def effort(self, asked: str) -> str:
        """The level of effort nearest to `asked` that the template takes."""
        return asked if self._template is None else nearest_effort(asked, self._template.efforts)

    @property
    def efforts(self) -> tuple[str, ...]:
        """Levels of effort that the template does not refuse, ascending: all where it looks at none."""
        return () if self._template is None else self._template.efforts

    @property
    def template_variables(self) -> frozenset[str]:
        """The names that the template looks at."""
        return frozenset() if self._template is None else self._template.variables

    def render(
        self,
        messages: Sequence[Any],
        generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Any] | None = None,
    ) -> str:
        """The text of `messages` without images, with the start of the assistant's next message unless told
        otherwise. Raises RequestError, UnsupportedError."""
        return self._rendered(messages, None, generation_prompt, variables, tools).text

    def _rendered(
        self,
        messages: Sequence[Any],
        addresses: list[ImageAddress] | None,
        generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Any] | None = None,
    ) -> Rendered:
        """With `addresses`, where the model takes images: those of the images are appended."""
        if self._template is None:
            raise UnsupportedError(
                "this model has no chat template; use /v1/completions with a prompt", field="messages"
            )
        images = addresses if self._images is not None else None
        normalized = normalize_messages(messages, images, self._template.form)
        normalized = self._template.system_places.fitted(normalized)
        return self._template.render(normalized, generation_prompt, variables, normalize_tools(tools))

    def from_text(self, text: str, context: int | None = None, where: str = "prompt") -> Prompt:
        """The prompt `text`, after the beginning-of-sequence token where the model wants one. Raises
        ContextLengthError for more than `context` tokens."""
        try:
            tokens = self.tokenizer.encode_prompt(text, context)
        except TooManyTokens as error:
            raise ContextLengthError.of_prompt(error.count, error.most, where) from None
        return _prompt(tokens, text, where)

    def from_tokens(self, tokens: Sequence[int], where: str = "prompt") -> Prompt:
        """The prompt `tokens`, as they are. Raises RequestError for ids outside the vocabulary."""
        self.check_tokens(tokens, where)
        return _prompt(tokens, None, where)

    def check_tokens(self, tokens: Sequence[int], where: str) -> None:
        """Raises RequestError for ids outside the vocabulary."""
        for index, token in enumerate(tokens):
            if not 0 <= token < self._vocab_size:
                raise RequestError(
                    f"{where}[{index}] is {token}, not a token id below {self._vocab_size}", field=where
                )


def _prompt(tokens: Sequence[int], text: str | None, where: str, endpoints: tuple[int, ...] = ()) -> Prompt:
    if not tokens:
        raise RequestError(f"{where} is empty: there is no token to continue from", field=where)
    return Prompt(tuple(tokens), text, endpoints)

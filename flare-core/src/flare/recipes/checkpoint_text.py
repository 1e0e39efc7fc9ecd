"""Tokenizer and chat template of a checkpoint, and the frontend that is made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flare.contract import (
    CallFormat,
    CallSyntax,
    DefaultSampling,
    Frontend,
    ImageProfile,
    Mark,
    OutputFormat,
    ReasoningFormat,
    TaggedArguments,
    TemplateKind,
)
from flare.errors import CheckpointError
from flare.recipes.recipe import FrontendFiles

if TYPE_CHECKING:
    from flare.prepare import Assets

_TOKENIZER = "asset/tokenizer.json"
_TEMPLATE = "asset/chat_template.jinja"


class CheckpointText:
    """Of a checkpoint that has `tokenizer.json` and a Jinja template; CheckpointError when it lacks one."""

    def __init__(self, assets: Assets) -> None:
        if assets.tokenizer is None or assets.chat_template is None:
            raise CheckpointError("the checkpoint has no tokenizer or no chat template", field="assets")
        self._tokenizer, self._template = assets.tokenizer, assets.chat_template
        self._special_tokens = dict(assets.special_tokens)
        added: list[dict[str, Any]] = json.loads(assets.tokenizer).get("added_tokens") or []
        self._added = {token["content"]: token for token in added}

    def token(self, text: str) -> int:
        """The id of an added token. Raises CheckpointError when there is none."""
        if text not in self._added:
            raise CheckpointError(f"the tokenizer lacks {text}", field="tokenizer")
        return int(self._added[text]["id"])

    def mark(self, text: str) -> Mark:
        """A mark of outputs: a token where the tokenizer has one."""
        return Mark(text=text, token=self.token(text) if text in self._added else None)

    def tagged_output(
        self, arguments: TaggedArguments, *, reasoning: str = "think", calls: str = "tool_call"
    ) -> OutputFormat:
        """The format of a model that writes reasoning between `<think>` and `</think>` and each call, with
        these `arguments`, between `<tool_call>` and `</tool_call>`, or tags of other names. Raises
        CheckpointError for a literal that is a special token: it would have no text in an output."""
        for literal in arguments.model_dump().values():
            if isinstance(literal, str) and self._added.get(literal, {}).get("special"):
                raise CheckpointError(f"{literal} is a special token of the tokenizer", field="tokenizer")
        return OutputFormat(
            reasoning=ReasoningFormat(start=self.mark(f"<{reasoning}>"), end=self.mark(f"</{reasoning}>")),
            calls=CallFormat(
                syntax=CallSyntax.TAGGED,
                start=self.mark(f"<{calls}>"),
                end=self.mark(f"</{calls}>"),
                arguments=arguments,
            ),
        )

    def frontend(
        self,
        *,
        vocab_size: int,
        ends: Sequence[str],
        sampling: DefaultSampling,
        output: OutputFormat | None = None,
        images: ImageProfile | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> FrontendFiles:
        """The frontend. `ends` are the tokens that end generation, `special_tokens` the names that the
        template may use; None takes the checkpoint's. Raises CheckpointError for an end that is no token."""
        named = self._special_tokens if special_tokens is None else special_tokens
        return FrontendFiles(
            frontend=Frontend(
                vocab_size=vocab_size,
                tokenizer_asset=_TOKENIZER,
                template_kind=TemplateKind.JINJA,
                template_asset=_TEMPLATE,
                special_tokens=dict(named),
                eos_token_ids=tuple(self.token(end) for end in ends),
                default_sampling=sampling,
                output=output or OutputFormat(),
                images=images,
            ),
            assets={_TOKENIZER: self._tokenizer, _TEMPLATE: self._template.encode()},
        )

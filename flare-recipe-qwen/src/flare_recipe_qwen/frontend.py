"""The frontend: the checkpoint's tokenizer and chat template, and what ends generation.

The template renders thinking itself: `enable_thinking`, `preserve_thinking` and `reasoning_effort` are its
variables, and what it takes without them is what the model card describes as the default.
"""

from __future__ import annotations

import json

from flare.contract import (
    CallFormat,
    CallSyntax,
    DefaultSampling,
    Frontend,
    Mark,
    OutputFormat,
    ReasoningFormat,
    TaggedArguments,
    TemplateKind,
)
from flare.prepare import Checkpoint, CheckpointError
from flare.recipes import FrontendFiles
from flare_recipe_qwen.config import ModelConfig
from flare_recipe_qwen.image_config import image_profile

_END_OF_TEXT = ("<|im_end|>", "<|endoftext|>")


class QwenFrontend:
    """The frontend part of the recipe."""

    def assets(self, checkpoint: Checkpoint, config: ModelConfig, sampling: DefaultSampling) -> FrontendFiles:
        """Tokenizer and template bytes, and what images are made into. Raises CheckpointError when one is
        missing."""
        tokenizer, template = checkpoint.assets.tokenizer, checkpoint.assets.chat_template
        if tokenizer is None or template is None:
            raise CheckpointError("the checkpoint has no tokenizer or no chat template", field="assets")
        added = {token["content"]: token["id"] for token in json.loads(tokenizer)["added_tokens"]}
        for token in _END_OF_TEXT:
            if token not in added:
                raise CheckpointError(f"the tokenizer lacks {token}", field="tokenizer")
        return FrontendFiles(
            frontend=Frontend(
                vocab_size=config.text.vocab_size,
                tokenizer_asset="asset/tokenizer.json",
                template_kind=TemplateKind.JINJA,
                template_asset="asset/chat_template.jinja",
                special_tokens=dict(checkpoint.assets.special_tokens),
                images=None
                if config.images is None
                else image_profile(config.images, checkpoint.assets.image_processor),
                eos_token_ids=tuple(added[token] for token in _END_OF_TEXT),
                default_sampling=sampling,
                output=_output(added),
            ),
            assets={
                "asset/tokenizer.json": tokenizer,
                "asset/chat_template.jinja": template.encode(),
            },
        )


def _output(added: dict[str, int]) -> OutputFormat:
    """How the model writes, as its template describes it to the model; marks are tokens where the tokenizer
    has them."""

    def mark(text: str) -> Mark:
        return Mark(text=text, token=added.get(text))

    return OutputFormat(
        reasoning=ReasoningFormat(start=mark("<think>"), end=mark("</think>")),
        calls=CallFormat(
            syntax=CallSyntax.TAGGED,
            start=mark("<tool_call>"),
            end=mark("</tool_call>"),
            arguments=TaggedArguments(
                name_start="<function=",
                name_end=">",
                argument_start="<parameter=",
                key_end=">",
                value_end="</parameter>",
                body_end="</function>",
                newlines=True,
            ),
        ),
    )

"""The frontend: the checkpoint's tokenizer and chat template, what ends generation, and how the model writes.

The template always opens the reasoning. `reasoning_effort` (low, high, else max) and `clear_thinking` (drop
that of earlier turns) are its variables, and what it takes without them is what the model card describes as
the default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
from flare_recipe_glm.image_config import image_profile

if TYPE_CHECKING:
    from flare_recipe_glm.config import ModelConfig

# The end of the text, the user's turn, and results of tools: what comes next is not the model's.
_ENDS = ("<|endoftext|>", "<|user|>", "<|observation|>")
_ARGUMENTS = TaggedArguments(
    argument_start="<arg_key>",
    key_end="</arg_key>",
    value_start="<arg_value>",
    value_end="</arg_value>",
)


class GlmFrontend:
    """The frontend part of the recipe."""

    def assets(self, checkpoint: Checkpoint, config: ModelConfig, sampling: DefaultSampling) -> FrontendFiles:
        """Tokenizer and template bytes, and what images are made into. Raises CheckpointError when one is
        missing, or the tokenizer has not the tokens that the model writes."""
        tokenizer, template = checkpoint.assets.tokenizer, checkpoint.assets.chat_template
        if tokenizer is None or template is None:
            raise CheckpointError("the checkpoint has no tokenizer or no chat template", field="assets")
        added = {token["content"]: token for token in json.loads(tokenizer)["added_tokens"]}
        for token in _ENDS:
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
                eos_token_ids=tuple(added[token]["id"] for token in _ENDS),
                default_sampling=sampling,
                output=_output(added),
            ),
            assets={
                "asset/tokenizer.json": tokenizer,
                "asset/chat_template.jinja": template.encode(),
            },
        )


def _output(added: Mapping[str, Mapping[str, Any]]) -> OutputFormat:
    """How the model writes, as its template describes it to the model; marks are tokens where the tokenizer
    has them."""
    for literal in _ARGUMENTS.model_dump().values():
        if isinstance(literal, str) and added.get(literal, {}).get("special"):
            # It would have no text in an output.
            raise CheckpointError(f"{literal} is a special token of the tokenizer", field="tokenizer")

    def mark(text: str) -> Mark:
        return Mark(text=text, token=added[text]["id"] if text in added else None)

    return OutputFormat(
        reasoning=ReasoningFormat(start=mark("<think>"), end=mark("</think>")),
        calls=CallFormat(
            syntax=CallSyntax.TAGGED,
            start=mark("<tool_call>"),
            end=mark("</tool_call>"),
            arguments=_ARGUMENTS,
        ),
    )

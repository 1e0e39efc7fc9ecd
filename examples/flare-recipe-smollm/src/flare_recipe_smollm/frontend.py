"""SmolLM2's frontend: its tokenizer, its chat template, and what ends generation."""

from __future__ import annotations

import json
from typing import Any

from flare.contract import DefaultSampling, Frontend, TemplateKind
from flare.prepare import Checkpoint, CheckpointError
from flare.recipes import FrontendFiles

_END_OF_TEXT = ("<|im_end|>", "<|endoftext|>")


class SmolLMFrontend:
    """The frontend part of the recipe."""

    def assets(self, checkpoint: Checkpoint, config: Any, sampling: DefaultSampling) -> FrontendFiles:
        """Tokenizer and template bytes of the checkpoint. Raises CheckpointError when one is missing."""
        tokenizer, template = checkpoint.assets.tokenizer, checkpoint.assets.chat_template
        if tokenizer is None or template is None:
            raise CheckpointError("the checkpoint has no tokenizer or no chat template", field="assets")
        added = {token["content"]: token["id"] for token in json.loads(tokenizer)["added_tokens"]}
        for token in _END_OF_TEXT:
            if token not in added:
                raise CheckpointError(f"the tokenizer lacks {token}", field="tokenizer")
        return FrontendFiles(
            frontend=Frontend(
                vocab_size=config.vocab_size,
                tokenizer_asset="asset/tokenizer.json",
                template_kind=TemplateKind.JINJA,
                template_asset="asset/chat_template.jinja",
                special_tokens={"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
                eos_token_ids=tuple(added[token] for token in _END_OF_TEXT),
                default_sampling=sampling,
            ),
            assets={
                "asset/tokenizer.json": tokenizer,
                "asset/chat_template.jinja": template.encode(),
            },
        )
